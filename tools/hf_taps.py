"""The tap points of src/engine/tap.h in Hugging Face transformers: the values of one forward pass, seen through hooks."""

import hashlib
import json
import pathlib
import struct

KEPT_ROWS = {"logits": 1}  # the head runs on the last row only


def load(spec):
    """Qwen3ForCausalLM in fp32 with eager attention: a synthetic: model, a directory or a Hugging Face name."""
    import torch
    from transformers import Qwen3ForCausalLM

    import synthetic

    if str(spec).startswith("synthetic:"):
        model = synthetic.hf_model(spec)
    else:
        model = Qwen3ForCausalLM.from_pretrained(spec, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    assert model.config._attn_implementation == "eager"
    return model


def taps_of(model, tokens):
    """One pass without a cache -> {tap_key: tensor}, batch axis removed, in the order of the forward pass."""
    import torch
    from transformers.models.qwen3 import modeling_qwen3

    taps, removers = {}, []
    body, layers = model.model, model.model.layers
    flat = lambda tensor: tensor[0].detach().clone().contiguous()

    def after(module, key):
        removers.append(module.register_forward_hook(
            lambda _, args, out: taps.__setitem__(key, flat(out[0] if isinstance(out, tuple) else out))))

    def before(module, key):
        removers.append(module.register_forward_pre_hook(lambda _, args: taps.__setitem__(key, flat(args[0]))))

    plain_attention = modeling_qwen3.eager_attention_forward

    def attention(module, query, key, value, *args, **kwargs):
        prefix = f"layers.{module.layer_idx}."
        for name, tensor in (("q", query), ("k", key), ("v", value)):  # [1, heads, rows, head_dim]
            taps[prefix + name] = flat(tensor.transpose(1, 2))
        out, weights = plain_attention(module, query, key, value, *args, **kwargs)
        taps[prefix + "attn_out"] = flat(out)  # [1, rows, heads, head_dim]
        return out, weights

    after(body.embed_tokens, "embed")
    for i, layer in enumerate(layers):
        after(layer.input_layernorm, f"layers.{i}.attn_norm")
        before(layer.post_attention_layernorm, f"layers.{i}.attn_resid")
        after(layer.post_attention_layernorm, f"layers.{i}.mlp_norm")
        before(layer.mlp.down_proj, f"layers.{i}.mlp_act")
        after(layer, f"layers.{i}.block_out")
    after(body.norm, "final_norm")
    modeling_qwen3.eager_attention_forward = attention
    try:
        with torch.inference_mode():
            taps["logits"] = flat(model(torch.tensor([tokens]), use_cache=False, logits_to_keep=1).logits)
    finally:
        modeling_qwen3.eager_attention_forward = plain_attention
        for remover in removers:
            remover.remove()
    return taps


def model_hash(spec, directory=None):
    """As `fs` names a model: synthetic:SHAPE@SEED, or the digest of the weight file(s) in a checkpoint's directory."""
    import synthetic

    if str(spec).startswith("synthetic:"):
        return "synthetic:{}@{}".format(*synthetic.parse_spec(spec))
    files = sorted(pathlib.Path(directory).glob("model*.safetensors"))
    if not files:
        raise SystemExit(f"{directory}: no model*.safetensors there")
    digests = []
    for path in files:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return "sha256:" + digests[0]
    return "sha256:" + hashlib.sha256("".join(digest + "\n" for digest in digests).encode()).hexdigest()


def save(taps, path, metadata):
    """A safetensors file of F32 tensors. (The library's own writer orders metadata at random.)"""
    header, end = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for key, tensor in taps.items():
        begin, end = end, end + 4 * tensor.numel()
        header[key] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in taps.values():
            file.write(tensor.float().contiguous().numpy().tobytes())


def metadata(name, hash_, tokens):
    """What a recording says of itself, for `fs layer-diff`."""
    import torch
    import transformers

    return {"model": str(name), "model_hash": hash_, "tokens": ",".join(map(str, tokens)),
            "first_position": "0", "first_position.logits": str(len(tokens) - KEPT_ROWS["logits"]),
            "backend": "transformers eager fp32",
            "build": f"transformers {transformers.__version__}, torch {torch.__version__}"}
