"""Makes the golden values: what Hugging Face transformers computes for golden/tiny and the synthetic models.

    python tools/make_golden.py             every golden file of this script, then the manifest (a few minutes, 8 GB)
    python tools/make_golden.py --rehash    only the sizes and sha256 in golden/manifest.json (standard library only)

Oracle: Qwen3ForCausalLM with eager attention, fp32 (bf16 weights widened), one thread, no cache, hooks at the tap
points of src/engine/tap.h. The same versions on the same kind of machine give the same bytes. `noise_percent` of a case
is what fp32 itself loses: these values against the same model in fp64, as a share of the tolerance, worst element.
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import re

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "golden"
RECIPE = "python tools/make_golden.py"
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
NEAR_TIE = 2e-3  # greedy steps whose best two logits are closer than this decide nothing

FRANCE = [785, 6722, 315, 9625, 374]  # "The capital of France is" in Qwen3's tokenizer
TAPS_TEXT = "Once upon a time, there was a little"
SAMPLER_TEXT = "3 + 4 = 7. 2 + "
GREEDY_TEXTS = ["The capital of France is", "Once upon a time", "2 + 3 ="]
CHAT = [{"role": "user", "content": "What is the capital of France?"}]


def affine_ids(count, factor, offset, vocab_size):
    """The documented prompt: id of position i = (factor * i + offset) mod vocab_size."""
    return [(factor * i + offset) % vocab_size for i in range(count)]


# ---- files and manifest ----------------------------------------------------------------------------------------------


def recipe_of(path):
    """The command that made a golden file."""
    if path.startswith("tiny/"):
        return "python tools/make_tiny_model.py"
    if path.startswith("tokenizer/"):
        return "python tools/tokenizer_oracle.py"
    if path == "chat_cases.json":
        return "python tools/chat_oracle.py"
    if path == "qwen3-0.6b.json":
        return RECIPE + " (published pins; figures measured once on the real model)"
    return RECIPE


def hashed_files():
    files = {}
    for path in sorted(p for p in GOLDEN.rglob("*") if p.is_file() and p.name != "manifest.json"):
        data, name = path.read_bytes(), path.relative_to(GOLDEN).as_posix()
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "recipe": recipe_of(name)}
    return files


def write_json(path, document):
    """Indented, but lists of numbers and small objects on one line."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+((?:-?[\d.e+-]+,\s+)*-?[\d.e+-]+)\s+\]",
                  lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)
    text = re.sub(r'\{\s+("[^{}]{1,120}?)\s+\}', lambda m: "{" + re.sub(r",\s+", ", ", m[1]) + "}", text)
    path.write_text(text + "\n")


def save(tensors, path):
    """F32 safetensors, readable by everyone."""
    from safetensors.torch import save_file

    save_file(tensors, path)
    path.chmod(0o644)


def rehash():
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    manifest["files"] = hashed_files()
    write_json(GOLDEN / "manifest.json", manifest)


# ---- the oracle ------------------------------------------------------------------------------------------------------


class Oracle:
    """One model."""

    def __init__(self, spec):
        from transformers import AutoTokenizer

        import hf_taps

        self.spec, self.tokenizer = spec, None
        self.directory = None if spec.startswith("synthetic:") else GOLDEN / spec
        self.model = hf_taps.load(self.directory or spec)
        self.hash = hf_taps.model_hash(spec, self.directory)
        if self.directory:
            self.tokenizer = AutoTokenizer.from_pretrained(self.directory)
        self.n_ids = len(self.tokenizer) if self.tokenizer else self.model.config.vocab_size

    def run(self, tokens):
        """One pass without a cache -> {tap_key: tensor}."""
        import hf_taps

        return hf_taps.taps_of(self.model, tokens)

    def greedy(self, tokens, count):
        """-> (ids, margins): each step recomputed without a cache; ids the tokenizer does not have are never chosen."""
        import torch

        ids, margins = [], []
        for _ in range(count):
            with torch.inference_mode():
                logits = self.model(torch.tensor([tokens + ids]), use_cache=False, logits_to_keep=1).logits[0, -1]
            best = logits[: self.n_ids].topk(2)
            ids.append(best.indices[0].item())
            margins.append(round((best.values[0] - best.values[1]).item(), 6))
        return ids, margins

    def exact(self, tokens):
        """The same pass in fp64."""
        import copy

        exact = copy.copy(self)
        exact.model = copy.deepcopy(self.model).double()
        exact.model.model.rotary_emb = exact_rotary(self.model.config)
        return exact.run(tokens)


def exact_rotary(config):
    """Rotary table in fp64 throughout, as src/reference has it (Hugging Face's own is fp32 whatever the model is)."""
    import torch

    class Rotary(torch.nn.Module):
        def forward(self, x, position_ids):
            half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
            angles = position_ids[..., None].double() / config.rope_theta**half
            table = torch.cat([angles, angles], -1)
            return table.cos(), table.sin()

    return Rotary()


def noise(tensors, exact):
    """What fp32 rounding uses up of the tolerance: the manifest's noise_percent and noise_at."""
    worst = {}
    for key, want in tensors.items():
        share = (want.double() - exact[key]).abs() / (TOLERANCE["atol"] + TOLERANCE["rtol"] * want.double().abs())
        worst[key] = round(100 * share.max().item(), 2)
    key = max(worst, key=worst.get)
    return {"noise_percent": worst[key], "noise_at": key}


# ---- cases -----------------------------------------------------------------------------------------------------------


def described(tensors):
    return {key: {"dtype": "F32", "shape": list(tensor.shape)} for key, tensor in tensors.items()}


def taps_case(name, oracle, tokens, file, points=None, layers=None, **more):
    """Writes the taps of one pass, all or the named points and layers: a recording for `fs layer-diff` too."""
    import hf_taps

    taps, exact = oracle.run(tokens), oracle.exact(tokens)
    if points:
        wanted = lambda key: key in points or (key.startswith("layers.") and key.split(".")[2] in points
                                               and int(key.split(".")[1]) in layers)
        taps = {key: tensor for key, tensor in taps.items() if wanted(key)}
    hf_taps.save(taps, GOLDEN / file, hf_taps.metadata(oracle.spec, oracle.hash, tokens))
    lost = noise(taps, exact)
    print(f"{name}: {len(taps)} tensors, {lost}")
    return {"name": name, "kind": "taps", "model": oracle.spec, "tokens": tokens, **more, "file": file,
            "points": points, "layers": layers, "tensors": described(taps), "tolerance": TOLERANCE,
            **lost, "recipe": RECIPE}


def last_row_case(name, oracle, tokens, file, top, **more):
    """Of a longer prompt: the last row after the final norm, and the highest logits."""
    taps, exact = oracle.run(tokens), oracle.exact(tokens)
    best = taps["logits"][0].topk(top)
    kept = lambda taps: {"final_norm": taps["final_norm"][-1:].contiguous(), "logits": taps["logits"][:, best.indices]}
    tensors = kept(taps)
    save(tensors, GOLDEN / file)
    lost = noise(tensors, kept(exact))
    print(f"{name}: {lost}")
    return {"name": name, "kind": "last_row", "model": oracle.spec, "tokens": tokens, **more, "file": file,
            "logit_ids": best.indices.tolist(), "tensors": described(tensors), "tolerance": TOLERANCE,
            **lost, "recipe": RECIPE}


def greedy_case(name, oracle, tokens, count, **more):
    ids, margins = oracle.greedy(tokens, count)
    text = {"continuation": oracle.tokenizer.decode(ids, skip_special_tokens=False)} if oracle.tokenizer else {}
    print(f"{name}: smallest margin {min(margins)} {text}")
    return {"name": name, "kind": "greedy", "model": oracle.spec, "tokens": tokens, **more, "ids": ids,
            "margins": margins, "near_tie": NEAR_TIE, **text, "recipe": RECIPE}


def tiny_cases(oracle):
    from golden_sampler import sampler_cases

    encode = lambda text: oracle.tokenizer(text, add_special_tokens=False).input_ids
    cases = [taps_case("tiny/taps", oracle, encode(TAPS_TEXT), "tiny_taps.safetensors", text=TAPS_TEXT)]
    for i, text in enumerate(GREEDY_TEXTS):
        cases.append(greedy_case(f"tiny/greedy/{i}", oracle, encode(text), 32, text=text))
    for thinking in (True, False):
        text = oracle.tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True,
                                                    enable_thinking=thinking)
        name = "tiny/greedy/chat-" + ("think" if thinking else "no-think")
        cases.append(greedy_case(name, oracle, encode(text), 48 if thinking else 32, text=text))
    tokens = encode(SAMPLER_TEXT)
    logits = oracle.run(tokens)["logits"]
    save({"logits": logits}, GOLDEN / "tiny_sampler.safetensors")
    document = sampler_cases(logits[0, : oracle.n_ids], tokens)
    document = {"model": oracle.spec, "tokens": tokens, "n_ids": oracle.n_ids, "logits": "tiny_sampler.safetensors",
                **document}
    write_json(GOLDEN / "sampler_cases.json", {**document, "recipe": RECIPE})
    cases.append({"name": "tiny/sampler", "kind": "sampler", "model": oracle.spec, "tokens": tokens,
                  "text": SAMPLER_TEXT, "file": "sampler_cases.json", "cases": len(document["cases"]),
                  "tolerance": TOLERANCE, "recipe": RECIPE})
    return cases


def odd_cases(oracle):
    formula = "id of position i = (151 i + 11) mod 347"
    tokens = affine_ids(17, 151, 11, 347)
    return [taps_case("tiny-odd/taps", oracle, tokens, "tiny-odd_taps.safetensors", tokens_formula=formula),
            greedy_case("tiny-odd/greedy", oracle, tokens, 32, tokens_formula=formula)]


def full_size_cases(oracle):
    formula = "id of position i = (40503 i + 785) mod 151936"
    return [taps_case("qwen3-0.6b-synthetic/taps", oracle, FRANCE, "qwen3-0.6b-synthetic.safetensors",
                      points=["embed", "block_out", "final_norm", "logits"], layers=[0, 13, 27]),
            last_row_case("qwen3-0.6b-synthetic/129-tokens", oracle, affine_ids(129, 40503, 785, 151936),
                          "qwen3-0.6b-synthetic_129.safetensors", 64, tokens_formula=formula),
            greedy_case("qwen3-0.6b-synthetic/greedy", oracle, FRANCE, 8)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rehash", action="store_true", help="only refresh sizes and sha256 in the manifest")
    if parser.parse_args().rehash:
        return rehash()

    import torch
    import transformers

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    cases = []
    for spec, make in (("tiny", tiny_cases), ("synthetic:tiny-odd", odd_cases),
                       ("synthetic:qwen3-0.6b", full_size_cases)):
        cases += make(Oracle(spec))
    write_json(GOLDEN / "manifest.json", {
        "schema": 1,
        "about": "Expected values of fs. A value passes if |got - want| <= atol + rtol * |want|. NaN never passes.",
        "oracle": {"implementation": "transformers Qwen3ForCausalLM, eager attention, fp32, one thread, no cache",
                   "python": platform.python_version(), "torch": torch.__version__,
                   "transformers": transformers.__version__, "machine": platform.machine()},
        "files": hashed_files(),
        "cases": cases,
    })


if __name__ == "__main__":
    main()
