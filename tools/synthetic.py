"""Synthetic models: the numpy twin of src/model/synthetic.h, which documents the hash and the scales.

Every weight is a pure function of (seed, tensor name, row-major index), rounded to bfloat16, the same here and in C++,
so a model of a full-size shape exists everywhere without a download.

    python tools/synthetic.py SPEC TENSOR COLS [FIRST [COUNT]]    prints elements, to compare with `fs`
    e.g. python tools/synthetic.py synthetic:tiny-odd@3 model.norm.weight 72 0 8
"""

import argparse
import math
import re

import numpy as np

# hidden, intermediate, layers, query heads, key/value heads, head_dim, vocabulary, eps, theta, positions, tied
SHAPES = {
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, 128, 151936, 1e-6, 1e6, 40960, True),
    "qwen3-1.7b": (2048, 6144, 28, 16, 8, 128, 151936, 1e-6, 1e6, 40960, True),
    "qwen3-4b": (2560, 9728, 36, 32, 8, 128, 151936, 1e-6, 1e6, 40960, True),
    "tiny-odd": (72, 151, 3, 6, 2, 20, 347, 1e-6, 1e4, 4096, False),
}

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
CHUNK = 1 << 20  # elements hashed at a time: bounds the scratch memory


def parse_spec(spec):
    """'synthetic:SHAPE[@SEED]' -> (shape, seed)."""
    match = re.fullmatch(r"(?:synthetic:)?([a-z0-9.-]+)(?:@(\d+))?", spec)
    if not match or match[1] not in SHAPES:
        raise SystemExit(f"unknown synthetic model '{spec}'; shapes: {', '.join(SHAPES)}")
    return match[1], int(match[2] or 0)


def mix(z):
    """splitmix64's output function on a uint64 array (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def offset_and_scale(tensor, cols):
    """The table of src/model/synthetic.h, as fp32."""
    if "embed_tokens" in tensor or "lm_head" in tensor:
        return np.float32(0), np.float32(0.05)
    if "q_norm" in tensor or "k_norm" in tensor:
        return np.float32(1.5), np.float32(0.5)
    if "norm" in tensor:
        return np.float32(1), np.float32(0.25)
    gain = 0.5 if "o_proj" in tensor or "down_proj" in tensor else 1.0
    return np.float32(0), np.float32(gain * math.sqrt(3 / cols))


def synthesize(seed, tensor, cols, first, count):
    """Elements [first, first + count) of a tensor as bfloat16 bit patterns, uint16 [count]. `cols`: last dimension."""
    key = np.uint64(fnv1a64(tensor)) ^ mix(np.array([seed], dtype=np.uint64))[0]
    offset, scale = offset_and_scale(tensor, cols)
    out = np.empty(count, dtype=np.uint16)
    for begin in range(0, count, CHUNK):
        n = min(CHUNK, count - begin)
        index = np.arange(first + begin + 1, first + begin + n + 1, dtype=np.uint64)
        with np.errstate(over="ignore"):
            h = mix(key + index * GOLDEN_GAMMA)
        x = (h >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        bits = (offset + scale * x).astype(np.float32).view(np.uint32)
        out[begin : begin + n] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return out


def hf_config(shape):
    """Hugging Face Qwen3Config of a shape."""
    from transformers import Qwen3Config

    hidden, intermediate, layers, q_heads, kv_heads, head_dim, vocab, eps, theta, positions, tied = SHAPES[shape]
    return Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=q_heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=eps,
        rope_theta=theta,
        max_position_embeddings=positions,
        tie_word_embeddings=tied,
        max_window_layers=layers,
        attn_implementation="eager",
    )


def hf_model(spec):
    """Qwen3ForCausalLM in fp32 with the synthetic weights, eager attention, evaluation mode."""
    import torch
    from transformers import Qwen3ForCausalLM

    shape, seed = parse_spec(spec)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(hf_config(shape))
    model = model.to_empty(device="cpu").eval()
    # to_empty() leaves the rotary table unset, and unties nothing: rebuild the one, fill the other by name.
    rotary = type(model.model.rotary_emb)(model.config)
    model.model.rotary_emb = rotary
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            bits = synthesize(seed, name, parameter.shape[-1], 0, parameter.numel())
            values = (bits.astype(np.uint32) << 16).view(np.float32)
            parameter.copy_(torch.from_numpy(values).view(parameter.shape))
    if model.config.tie_word_embeddings:
        model.tie_weights()
    return model


def main():
    parser = argparse.ArgumentParser(description="Print elements of a synthetic model's tensor.")
    parser.add_argument("spec", help="synthetic:SHAPE[@SEED]")
    parser.add_argument("tensor", help="e.g. model.layers.0.self_attn.q_proj.weight")
    parser.add_argument("cols", type=int, help="last dimension of the tensor")
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=8)
    args = parser.parse_args()
    _, seed = parse_spec(args.spec)
    bits = synthesize(seed, args.tensor, args.cols, args.first, args.count)
    for i, b in enumerate(bits):
        print(f"{args.first + i:>10}  0x{b:04x}  {(np.uint32(b) << np.uint32(16)).view(np.float32):.8g}")


if __name__ == "__main__":
    main()
