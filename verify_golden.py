#!/usr/bin/env python3
"""Checks `fs` against every golden value, and the golden files against their sha256. Python 3.9, standard library only.

    python3 verify_golden.py                      the bundled and synthetic models
    python3 verify_golden.py --model DIR          also the real Qwen3-0.6B, its files verified first
    python3 verify_golden.py --only 'tiny/*'      some of the cases
    python3 verify_golden.py --backend NAME       on another backend

One line a case: the worst element's error as a share of its tolerance (|got - want| <= atol + rtol |want|) and where it
is. Exit status: 0 everything that ran passed, 1 a value or a command failed, 2 wrong usage, 3 a golden or model file is
unusable.
"""

import argparse
import array
import fnmatch
import hashlib
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent
SAMPLING_FLAGS = {"temperature": "--temp", "top_k": "--topk", "top_p": "--topp", "min_p": "--minp",
                  "repetition_penalty": "--repeat-penalty", "presence_penalty": "--presence-penalty"}


class Unusable(Exception):
    """A golden or model file that cannot be used: exit status 3."""


class Mismatch(Exception):
    """A case that failed: exit status 1."""


# ---- files -----------------------------------------------------------------------------------------------------------


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def check_pin(path, name, sha256, size=None):
    """Raises Unusable unless the file has this size and sha256."""
    if not path.is_file():
        raise Unusable(f"{name}: missing (expected at {path})")
    if size is not None and path.stat().st_size != size:
        raise Unusable(f"{name}: {path.stat().st_size} bytes, expected {size}")
    found = sha256_of(path)
    if found != sha256:
        raise Unusable(f"{name}: sha256 is {found}, expected {sha256}")


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path.name}: {error}") from None


def floats(data):
    """Little-endian fp32 bytes -> array of float."""
    values = array.array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


class Tensor:
    def __init__(self, shape, values):
        self.shape, self.values = shape, values

    def row(self, index):
        """The last axis at one index of all the others taken together (-1: the last)."""
        width = self.shape[-1]
        begin = (index % (len(self.values) // width)) * width
        return Tensor([width], self.values[begin : begin + width])


def read_safetensors(path, error=Unusable):
    """{name: Tensor} of an F32 safetensors file. Raises `error` on anything malformed."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise error(f"{path.name}: {problem.strerror}") from None
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
        body, tensors = data[8 + length :], {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] != "F32" or not 0 <= begin <= end <= len(body):
                raise ValueError(f"tensor {name} is not F32 inside the file")
            if end - begin != 4 * math.prod(entry["shape"]):
                raise ValueError(f"tensor {name}: {end - begin} bytes for shape {entry['shape']}")
            tensors[name] = Tensor(entry["shape"], floats(body[begin:end]))
        return tensors
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise error(f"{path.name}: not a usable safetensors file: {problem}") from None


# ---- comparing -------------------------------------------------------------------------------------------------------


class Worst:
    """The worst element so far, as a share of its tolerance."""

    def __init__(self, tolerance):
        self.atol, self.rtol = float(tolerance["atol"]), float(tolerance["rtol"])
        self.share, self.place, self.count = 0.0, "", 0

    def add(self, place, index, got, want):
        error = abs(got - want) if got is not None else math.nan
        share = error / (self.atol + self.rtol * abs(want))
        self.count += 1
        if not share <= self.share:  # NaN is worse than anything
            self.share = share if share == share else math.inf
            self.place = f"{place}[{','.join(map(str, index))}]" + (" (not a number)" if share != share else "")

    def tensor(self, name, got, want, shape):
        """All elements. `shape` is the expected one, axes of length 1 aside."""
        if len(got) != len(want):
            raise Mismatch(f"{name}: {len(got)} values, expected {len(want)}")
        for flat, (g, w) in enumerate(zip(got, want)):
            if g != w:
                self.add(name, unravel(flat, shape), g, w)
        self.count += sum(1 for g, w in zip(got, want) if g == w)

    @property
    def passed(self):
        return self.count > 0 and self.share <= 1


def unravel(flat, shape):
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def without_ones(shape):
    return [size for size in shape if size != 1]


# ---- running fs ------------------------------------------------------------------------------------------------------


class Program:
    """The `fs` under test."""

    def __init__(self, path, backend, golden):
        self.path, self.backend, self.golden = path, backend, golden

    def model(self, spec):
        """A case's model as `fs --model` takes it."""
        return spec if ":" in spec or os.path.isabs(spec) else str(self.golden / spec)

    def run(self, *arguments):
        command = [str(self.path), *map(str, arguments)]
        if self.backend:
            command += ["--backend", self.backend]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise Mismatch(f"cannot run {self.path}: {error.strerror}") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise Mismatch(f"fs {arguments[0]} ended with status {done.returncode}: {said[-1] if said else 'silently'}")
        return done.stdout

    def json(self, *arguments):
        try:
            return json.loads(self.run(*arguments, "--json").decode("utf-8"))
        except ValueError as error:
            raise Mismatch(f"fs {arguments[0]} --json: {error}") from None

    def record(self, case, points, layers):
        """Taps of one pass over the case's tokens: {tap_key: Tensor}."""
        with tempfile.TemporaryDirectory(prefix="verify_golden.") as folder:
            file = pathlib.Path(folder) / "taps.safetensors"
            chosen = (["--taps", ",".join(points)] if points else [])
            chosen += ["--layers", ",".join(map(str, layers))] if layers else []
            self.run("logits", "-q", "--model", self.model(case["model"]), "--tokens", joined(case["tokens"]),
                     "--record", file, *chosen)
            return read_safetensors(file, Mismatch)


def joined(ids):
    return ",".join(map(str, ids))


# ---- kinds of case: each returns (Worst or None, note) ---------------------------------------------------------------


def golden_tensors(case, golden):
    """The case's tensors, which must be exactly those that the manifest lists."""
    tensors = read_safetensors(golden / case["file"])
    found = {name: tensor.shape for name, tensor in tensors.items()}
    listed = {name: entry["shape"] for name, entry in case["tensors"].items()}
    if found != listed:
        wrong = sorted(name for name in found.keys() | listed.keys() if found.get(name) != listed.get(name))
        raise Unusable(f"{case['file']}: tensor {wrong[0]} is {found.get(wrong[0])}, the manifest says "
                       f"{listed.get(wrong[0])}")
    return tensors


def compare_taps(case, program, golden):
    want = golden_tensors(case, golden)
    got, worst = program.record(case, case["points"], case["layers"]), Worst(case["tolerance"])
    if got.keys() != want.keys():
        odd = sorted(got.keys() ^ want.keys())
        raise Mismatch(f"{odd[0]} was {'not recorded' if odd[0] in want else 'recorded but is not expected'}")
    for name, tensor in want.items():
        if without_ones(got[name].shape) != without_ones(tensor.shape):
            raise Mismatch(f"{name}: shape {got[name].shape}, expected {tensor.shape}")
        worst.tensor(name, got[name].values, tensor.values, tensor.shape)
    return worst, f"{len(want)} tensors"


def compare_last_row(case, program, golden):
    want, ids = golden_tensors(case, golden), case["logit_ids"]
    got, worst = program.record(case, ["final_norm", "logits"], None), Worst(case["tolerance"])
    for name in want:
        if name not in got:
            raise Mismatch(f"{name} was not recorded")
    rows = len(case["tokens"])
    if got["final_norm"].shape[0] != rows:
        raise Mismatch(f"final_norm: shape {got['final_norm'].shape}, expected {rows} rows")
    norm, logits = got["final_norm"].row(-1).values, got["logits"].row(-1).values
    worst.tensor("final_norm", norm, want["final_norm"].values, want["final_norm"].shape)
    values = want["logits"].values
    if len(ids) != len(values) or max(ids) >= len(logits):
        raise Mismatch(f"logits: {len(logits)} values cannot hold the expected ids")
    for id, value in zip(ids, values):
        worst.add("logits", [id], logits[id], value)
    listed, floor = set(ids), min(values)
    for id, value in enumerate(logits):  # nothing else may be among the highest
        if id not in listed and not value <= floor:
            worst.add("logits", [id], value, floor)
    return worst, f"last of {rows} rows, top {len(ids)} logits"


def compare_greedy(case, program, golden):
    want = case["ids"]
    margins = case.get("margins")
    ties = ({step: f"margin {m:g}" for step, m in enumerate(margins) if m < case["near_tie"]} if margins else
            dict.fromkeys(case["near_ties"], "known"))
    answer = program.json("generate", "-q", "--model", program.model(case["model"]), "--tokens",
                          joined(case["tokens"]), "-n", len(want), "--temp", 0, "--ignore-eos")
    got = answer.get("ids")
    if answer.get("prompt_ids") != case["tokens"]:
        raise Mismatch(f"prompt_ids are {answer.get('prompt_ids')}, expected {case['tokens']}")
    if not isinstance(got, list) or len(got) != len(want):
        raise Mismatch(f"{len(got) if isinstance(got, list) else 'no'} ids, expected {len(want)}")
    for step, (g, w) in enumerate(zip(got, want)):
        if g == w:
            continue
        if step in ties:
            return None, f"{step} of {len(want)} ids equal; stopped at step {step}, a near tie ({ties[step]})"
        raise Mismatch(f"step {step}: id {g}, expected {w}" + (f" (margin {margins[step]:g})" if margins else ""))
    return None, f"{len(want)} ids equal"


def compare_sampler(case, program, golden):
    document, worst = read_json(golden / case["file"]), Worst(case["tolerance"])
    shown = [one for one in document["cases"] if not one["edits"]]
    if len(document["cases"]) != case["cases"] or not shown:
        raise Unusable(f"{case['file']}: {len(document['cases'])} cases, the manifest says {case['cases']}")
    for one in shown:
        options = {**document["defaults"], **one["options"]}
        flags = [part for key, flag in SAMPLING_FLAGS.items() for part in (flag, options[key])]
        answer = program.json("logits", "-q", "--model", program.model(document["model"]), "--tokens",
                              joined(document["tokens"]), *flags)
        place = f"\"{one['name']}\""
        try:
            got = [(entry["id"], entry["probability"]) for entry in answer["candidates"]]
        except (KeyError, TypeError):
            raise Mismatch(f"{place}: no candidates") from None
        if sorted(id for id, _ in got) != sorted(one["ids"]):
            raise Mismatch(f"{place}: survivors {[id for id, _ in got][:8]}…, expected {one['ids'][:8]}… "
                           f"({len(got)} and {len(one['ids'])})")
        probability = dict(got)
        for id, want in zip(one["ids"], one["probabilities"]):
            worst.add(place, [id], probability[id], want)
    return worst, f"{len(shown)} settings"


def compare_tokenize(case, program, golden):
    got = program.json("tokenize", "-q", "--model", case["model"], case["text"])
    ids = got.get("ids") if isinstance(got, dict) else got
    if ids != case["ids"]:
        raise Mismatch(f"ids of \"{case['text']}\" are {ids}, expected {case['ids']}")
    return None, f"{len(ids)} ids equal"


def compare_figures(case, program, golden):
    """The published figures of the real model: top logits, logsumexp, minimum, L2 norms of rows."""
    figures, worst = case["figures"], Worst(case["tolerance"])
    answer = program.json("logits", "-q", "--model", case["model"], "--tokens", joined(case["tokens"]), "--top",
                          len(figures["top"]))
    top = {entry["id"]: entry["logit"] for entry in answer.get("top", [])}
    if sorted(top) != sorted(id for id, _ in figures["top"]):
        raise Mismatch(f"top ids are {list(top)}, expected {[id for id, _ in figures['top']]}")
    for id, value in figures["top"]:
        worst.add("logits", [id], top[id], value)
    for key in ("logsumexp", "min"):
        if key not in answer:
            raise Mismatch(f"fs logits --json has no \"{key}\"")
        worst.add(key, [], answer[key], figures[key])
    got = program.record(case, ["embed", "block_out", "final_norm", "logits"], [0])
    for key, norms in figures["row_norms"].items():
        tensor = got.get(key)
        if tensor is None or len(tensor.values) != len(norms) * figures["hidden"]:
            raise Mismatch(f"{key} was not recorded with {len(norms)} rows")
        for row, norm in enumerate(norms):
            worst.add(f"norm of {key}", [row], math.sqrt(math.fsum(v * v for v in tensor.row(row).values)), norm)
    compared = "published figures"
    for name, (key, file) in case["full_tensors"].items():
        want = floats(file.read_bytes())
        if key not in got:
            raise Mismatch(f"{key} was not recorded")
        worst.tensor(key, got[key].values, want, got[key].shape)
        compared = "published figures and full tensors"
    return worst, compared


COMPARE = {"taps": compare_taps, "last_row": compare_last_row, "greedy": compare_greedy, "sampler": compare_sampler,
           "tokenize": compare_tokenize, "figures": compare_figures}


# ---- the real model --------------------------------------------------------------------------------------------------


def full_tensors(pins, folder):
    """{name: (tap_key, file)} of the whole tensors beside the repository, verified; {} where they are not there."""
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return {}
    found = {}
    for name, entry in read_json(manifest)["checkpoints"].items():
        if name in pins["full_tensor_keys"]:
            check_pin(folder / entry["file"], entry["file"], entry["sha256"], entry["bytes"])
            found[name] = (pins["full_tensor_keys"][name], folder / entry["file"])
    return found


def real_cases(golden, model):
    """Cases of golden/qwen3-0.6b.json on the checkpoint in `model` (None: not given, they only have names)."""
    pins = read_json(golden / "qwen3-0.6b.json")
    full = {}
    if model:
        for name, pin in pins["files"].items():
            check_pin(model / name, f"{model / name}", pin["sha256"], pin.get("bytes"))
        full = full_tensors(pins, ROOT.parent / "shared" / "assets" / "qwen3-0.6b-hf")
    return [{**case, "model": str(model), "full_tensors": full} for case in pins["cases"]]


# ---- the report ------------------------------------------------------------------------------------------------------


def run_case(case, program, golden):
    """-> the line of one case as a dictionary with name, status, and worst_percent, at, note or error."""
    result = {"name": case["name"], "status": "failed"}
    try:
        worst, note = COMPARE[case["kind"]](case, program, golden)
        result["note"] = note
        if worst is None or worst.passed:
            result["status"] = "passed"
        if worst is not None:
            share = 100 * worst.share
            result.update(worst_percent=share if share < math.inf else None, at=worst.place, values=worst.count)
    except Mismatch as problem:
        result["error"] = str(problem)
    except Unusable as problem:
        result.update(error=str(problem), unusable=True)
    if result["status"] == "failed" and "unusable" not in result:
        result["layer_diff"] = first_difference(case, program)
    return result


def first_difference(case, program):
    """What `fs layer-diff` says of a case that failed, against the recorded taps, or the reference where there are none:
    its command and verdict, or "" where nothing in the forward pass differs."""
    if case["kind"] == "taps":
        sides = ["--a", f"dump:{program.golden / case['file']}", "--b", program.backend or "auto"]
    elif "tokens" in case:
        sides = ["--a", "reference", "--b", program.backend or "auto", "--tokens", joined(case["tokens"] + case.get("ids", []))]
    else:
        return ""
    command = [str(program.path), "layer-diff", "-q", *sides, "--model", program.model(case["model"])]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    verdicts = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if "first difference" in line]
    return f"{' '.join(['fs', *command[1:]])}\n     {verdicts[0]}" if verdicts else ""


def line_of(result):
    head = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[result["status"]] + f" {result['name']:<34}"
    verdict = f"\n     {result['layer_diff']}" if result.get("layer_diff") else ""
    if "error" in result:
        return f"{head} {result['error']}{verdict}"
    parts = []
    if "values" in result:
        percent = result["worst_percent"]
        parts.append(f"worst {'beyond measure' if percent is None else f'{percent:.1f} %'} of tolerance"
                     + (f" at {result['at']}" if result["at"] else "") + f", {result['values']} values")
    return f"{head} " + " · ".join(parts + [result["note"]]) + verdict


def check_files(golden, manifest):
    """-> one failed result for each golden file that is missing, changed or unknown."""
    results, listed = [], manifest["files"]
    present = {p.relative_to(golden).as_posix() for p in golden.rglob("*") if p.is_file()} - {"manifest.json"}
    for name in sorted(present - listed.keys()):
        results.append({"name": name, "status": "failed",
                        "error": "not in golden/manifest.json (tools/make_golden.py --rehash)"})
    for name, entry in listed.items():
        try:
            check_pin(golden / name, name, entry["sha256"], entry["bytes"])
        except Unusable as problem:
            results.append({"name": name, "status": "failed", "error": str(problem).partition(": ")[2]})
    return results


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0],
                                     epilog="Exit status: 0 passed, 1 failed, 2 usage, 3 unusable golden or model file.")
    parser.add_argument("--fs", metavar="PATH", help="the fs to check; default: build/release/bin/fs, then fs on PATH")
    parser.add_argument("--model", metavar="DIR", type=pathlib.Path, help="the real Qwen3-0.6B: runs its cases too")
    parser.add_argument("--backend", metavar="NAME", help="passed on to fs")
    parser.add_argument("--only", metavar="PATTERN", help="cases whose name matches, * and ? as in the shell")
    parser.add_argument("--golden", metavar="DIR", type=pathlib.Path, default=ROOT / "golden", help="default: golden/")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args()


def find_program(path):
    candidates = [path] if path else [ROOT / "build/release/bin/fs", shutil.which("fs")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return pathlib.Path(candidate).resolve()
    print(f"verify_golden: no program at {path}" if path else
          "verify_golden: no fs: build it (tools/run) or name it with --fs PATH", file=sys.stderr)
    sys.exit(2)


def main():
    args = arguments()
    program = Program(find_program(args.fs), args.backend, args.golden)
    say = (lambda line: None) if args.json else (lambda line: print(line, flush=True))
    results = []

    def add(result):
        results.append(result)
        say(line_of(result))

    try:
        manifest = read_json(args.golden / "manifest.json")
        broken = check_files(args.golden, manifest)
        for result in broken:
            add({**result, "unusable": True})
        if broken:
            raise Unusable("golden files differ from golden/manifest.json: no case was run")
        say(f"{len(manifest['files'])} golden files have the sha256 of golden/manifest.json")
        model = args.model.resolve() if args.model else None
        cases = manifest["cases"] + real_cases(args.golden, model)
        chosen = [case for case in cases if fnmatch.fnmatchcase(case["name"], args.only or "*")]
        if not chosen:
            print(f"verify_golden: no case matches {args.only}", file=sys.stderr)
            return 2
        for case in chosen:
            if case["model"] == "None":
                add({"name": case["name"], "status": "skipped", "note": "needs --model DIR with the real Qwen3-0.6B"})
            else:
                add(run_case(case, program, args.golden))
    except Unusable as problem:
        add({"name": "files", "status": "failed", "error": str(problem), "unusable": True})
    except (KeyError, TypeError, AttributeError) as problem:
        add({"name": "files", "status": "failed", "error": f"manifest.json is incomplete: {problem!r}",
             "unusable": True})

    counts = {status: sum(r["status"] == status for r in results) for status in ("passed", "failed", "skipped")}
    if args.json:
        print(json.dumps({"fs": str(program.path), **counts, "results": results}, indent=1))
    else:
        print(f"{counts['passed']} passed, {counts['failed']} failed"
              + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    if any(r.get("unusable") for r in results):
        return 3
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
