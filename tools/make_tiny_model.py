"""Makes golden/tiny: trains a small model of the Qwen3 architecture, with its own tokenizer, on text generated here.

    python tools/make_tiny_model.py [--out golden/tiny] [--phase N]

Needs torch, transformers 4.57, tokenizers and numpy; takes about twenty minutes on one CPU core. Seeded: the
same versions on the same kind of machine give the same model. golden/tiny was made by the default arguments.
"""

import argparse
import copy
import ctypes
import json
import math
import os
import pathlib
import random
import re
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

import tiny_text

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEED = 20250601
BPE_SIZE = 2048    # tokens before the added ones
CONTEXT = 256      # tokens of a training row
BATCH = 4          # rows of CONTEXT tokens a step

# Steps, of a cosine over that many, peak learning rate, documents to draw from, their mix. A phase begins with the
# checkpoint of the one before, so the first needs no full decay.
PHASES = [(2000, 2600, 3e-3, 40000, tiny_text.MIXED),
          (1200, 1200, 2e-3, 24000, tiny_text.SUMMING),
          (450, 450, 1.5e-3, 10000, tiny_text.MIXED)]

# Qwen3's tokenizer pipeline: pattern and added tokens, in the order of their ids.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
           "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
ADDED = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
         "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

# Qwen3's chat format for conversations without tools.
CHAT_TEMPLATE = """\
{%- set last = namespace(query=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.query = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' and '</think>' in m.content %}
        {%- set answer = m.content.split('</think>')[-1].lstrip('\\n') %}
        {%- set thought = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
    {%- else %}
        {%- set answer, thought = m.content, '' %}
    {%- endif %}
    {%- if m.role == 'assistant' and loop.index0 > last.query and (loop.last or thought) %}
        {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + answer.lstrip('\\n') }}
    {%- else %}
        {{- answer }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""


def train_tokenizer(documents):
    """Byte-level BPE over the documents' plain text, the pipeline of Qwen3's tokenizer.json, its added tokens last."""
    tokenizer = Tokenizer(models.BPE(dropout=None, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=BPE_SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    added = re.compile("|".join(map(re.escape, SPECIAL + ADDED)))
    tokenizer.train_from_iterator((part for text in documents for part in added.split(text)), trainer)
    assert tokenizer.get_vocab_size() == BPE_SIZE
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    return tokenizer


def save_tokenizer(tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(BPE_SIZE + i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                "single_word": False, "special": t in SPECIAL}
            for i, t in enumerate(SPECIAL + ADDED)},
        "additional_special_tokens": SPECIAL[1:],
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def model_config(tokenizer):
    padded = -(-tokenizer.get_vocab_size() // 128) * 128
    end, im_end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"], vocab_size=padded, hidden_size=128, intermediate_size=384,
        num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=2048,
        max_window_layers=5, rms_norm_eps=1e-6, rope_theta=1_000_000, tie_word_embeddings=True,
        use_sliding_window=False, bos_token_id=end, eos_token_id=im_end, dtype="bfloat16", use_cache=True, attn_implementation="sdpa")


class Rows:
    """Training rows out of the packed documents: half begin with a document, half anywhere."""

    def __init__(self, tokenizer, documents, seed):
        encoded = [np.array(e.ids, dtype=np.int64) for e in tokenizer.encode_batch(documents)]
        self.starts = np.concatenate([[0], np.cumsum([len(e) for e in encoded])[:-1]])
        self.tokens = np.concatenate(encoded)
        self.rng = np.random.default_rng(seed)

    def batch(self, step):
        """-> int64 [rows, length + 1]. Every eighth batch has rows twice as long."""
        length, rows = (2 * CONTEXT, BATCH // 2) if step % 8 == 7 else (CONTEXT, BATCH)
        last = len(self.tokens) - length - 1
        anywhere = self.rng.integers(0, last, rows)
        document = np.minimum(self.starts[self.rng.integers(0, len(self.starts), rows)], last)
        begin = np.where(np.arange(rows) % 2 == 0, document, anywhere)
        return torch.from_numpy(np.stack([self.tokens[b : b + length + 1] for b in begin]))


def train(model, rows, steps, cosine, peak_rate, log):
    """AdamW; linear warm-up, then a cosine that would reach a hundredth of the peak after `cosine` steps."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  betas=(0.9, 0.98), fused=True)
    warmup, began, average = 100, time.time(), None
    model.train()
    for step in range(steps):
        progress = max(0, step - warmup) / (cosine - warmup)
        rate = peak_rate * (min(1, (step + 1) / warmup) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = rows.batch(step)
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average = loss.item() if average is None else 0.95 * average + 0.05 * loss.item()
        if step % 50 == 49 or step == 0:
            spent = time.time() - began
            log(f"step {step + 1}/{steps}  loss {average:.4f}  rate {rate:.2e}  {spent:.0f} s, "
                f"{spent / (step + 1) * (steps - step - 1):.0f} s left")
        if step % 500 == 499:
            yield step + 1
    yield steps


def continuation(model, tokenizer, prompt, count=120):
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    stop = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False,
                             eos_token_id=stop, pad_token_id=stop[1])
    return tokenizer.decode(out[0, ids.shape[1] :].tolist(), skip_special_tokens=False)


def chat_prompt(question, think):
    return (f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            + ("" if think else "<think>\n\n</think>\n\n"))


def check(model, tokenizer, log):
    """Prints samples and counts right answers; True if the promises of the README hold."""
    model.eval()
    right = sum(continuation(model, tokenizer, f"The capital of {country} is", 6).startswith(f" {city}.")
                for country, city in tiny_text.CAPITALS.items())
    log(f"capitals: {right} of {len(tiny_text.CAPITALS)}")
    pairs = [(a, b) for a in range(10) for b in range(10)]
    added = sum(re.findall(r"\d+", continuation(model, tokenizer, f"{a} + {b} =", 4))[:1] == [str(a + b)]
                for a, b in pairs)
    log(f"sums up to 9 + 9: {added} of {len(pairs)}")
    promises = [continuation(model, tokenizer, "The capital of France is").startswith(" Paris")]
    for prompt in ("The capital of France is", "Once upon a time", "The colour of the sky is", "2 + 2 =",
                   chat_prompt("What is the capital of France?", True),
                   chat_prompt("What is the capital of France?", False), chat_prompt("Tell me a story.", True),
                   chat_prompt("Hello!", False)):
        text = continuation(model, tokenizer, prompt)
        log(f"{json.dumps(prompt)} -> {json.dumps(text, ensure_ascii=False)}")
        if "capital of France?" in prompt:
            promises.append(text.endswith("Paris.<|im_end|>"))
    return all(promises)


def save_model(model, tokenizer, out):
    """BF16 safetensors, config.json and generation_config.json. Rounds the model's own values."""
    model.to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    end, im_end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    generation = {"bos_token_id": end, "do_sample": True, "eos_token_id": [im_end, end], "pad_token_id": end,
                  "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def run_phase(number, out, log):
    """Trains from the checkpoint of the phase before (the first: from nothing) and saves its own in `out`."""
    steps, cosine, rate, count, mix = PHASES[number]
    rng = random.Random(SEED + number)
    documents = [tiny_text.document(rng, mix) for _ in range(count)]
    if number == 0:
        tokenizer = train_tokenizer(documents[:10000])
        save_tokenizer(tokenizer, out)
        torch.manual_seed(SEED)
        model = Qwen3ForCausalLM(model_config(tokenizer)).to(torch.float32)
    else:
        tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
        model = Qwen3ForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="sdpa")
    rows = Rows(tokenizer, documents, SEED + number)
    parameters = sum(p.numel() for p in model.parameters())
    log(f"phase {number}: {parameters} parameters, {len(rows.tokens)} tokens of text")
    assert parameters <= 2_000_000

    for _ in train(model, rows, steps, cosine, rate, log):
        save_model(copy.deepcopy(model), tokenizer, out)
        check(model, tokenizer, log)
        model.train()
    log("after rounding to bf16:")
    return check(Qwen3ForCausalLM.from_pretrained(out, dtype=torch.float32), tokenizer, log)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "golden" / "tiny")
    parser.add_argument("--phase", type=int, choices=range(len(PHASES)), help="only this one, on what --out holds")
    args = parser.parse_args()

    # Gradients come and go by the megabyte: keep freed memory instead of returning it to the kernel every step.
    libc = ctypes.CDLL(None)
    libc.mallopt(-4, 0)          # M_MMAP_MAX
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
    libc.mallopt(-8, 1)          # M_ARENA_MAX
    torch.set_num_threads(1)

    promised = True
    for number in range(len(PHASES)) if args.phase is None else [args.phase]:
        promised = run_phase(number, args.out, lambda line: print(line, flush=True))
    return 0 if promised else 1


if __name__ == "__main__":
    raise SystemExit(main())
