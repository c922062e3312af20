"""Tests of verify_golden.py: it passes on right values and fails, naming what is wrong, on every kind of fault.

    python3 -m unittest tests/verify_golden_test.py

Faults of golden files and of fs's answers are shown with a stand-in for fs that replays the golden values; a weight
that is wrong in memory with the build's own fs_faulty, where it was built (FS_FAULTY names another place). Standard
library only.
"""

import json
import math
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "verify_golden.py"
FAULTY = pathlib.Path(os.environ.get("FS_FAULTY", ROOT / "build/release/bin/fs_faulty"))

STAND_IN = '''\
#!{python}
"""Replays golden values as fs would print them; FAULT in the environment spoils one."""
import json, math, os, pathlib, struct, sys
sys.path.insert(0, {root!r})
import verify_golden as v

golden, fault = pathlib.Path({golden!r}), os.environ.get("FAULT", "")
command, flags, words = sys.argv[1], {{}}, sys.argv[2:]
for i, word in enumerate(words):
    if word.startswith("--") or word == "-n":
        flags[word] = words[i + 1] if i + 1 < len(words) else ""
tokens = [int(t) for t in flags["--tokens"].split(",")]
model = flags["--model"]
as_given = v.Program("", None, golden).model
cases = [c for c in v.read_json(golden / "manifest.json")["cases"]
         if c["tokens"] == tokens and as_given(c["model"]) == model]

def write(path, tensors):
    header, data = {{}}, b""
    for name, tensor in tensors.items():
        values = struct.pack("<%df" % len(tensor.values), *tensor.values)
        header[name] = {{"dtype": "F32", "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(values)]}}
        data += values
    text = json.dumps(header).encode()
    blob = struct.pack("<Q", len(text)) + text + data
    pathlib.Path(path).write_bytes(blob[:-6] if fault == "truncated" else blob)

if fault == "status":
    print("fs: something broke", file=sys.stderr)
    sys.exit(1)
if command == "generate":
    ids = next(list(c["ids"]) for c in cases if c["kind"] == "greedy")
    if fault == "token":
        ids[-1] += 1
    if fault == "ids-short":
        ids.pop()
    if fault == "near-tie":
        ids[2:] = [0] * len(ids[2:])
    print(json.dumps({{"prompt_ids": tokens, "ids": ids}}))
elif "--record" in flags:
    case = next(c for c in cases if c["kind"] in ("taps", "last_row"))
    tensors = v.read_safetensors(golden / case["file"])
    if case["kind"] == "last_row":
        width, rows = tensors["final_norm"].shape[-1], len(tokens)
        tensors["final_norm"] = v.Tensor([rows, width], [0.0] * width * (rows - 1) + list(tensors["final_norm"].values))
        logits = [-100.0] * 151936
        for id, value in zip(case["logit_ids"], tensors["logits"].values):
            logits[id] = value
        if fault == "usurper":
            logits[next(i for i in range(151936) if i not in case["logit_ids"])] = 99.0
        tensors["logits"] = v.Tensor([1, 151936], logits)
    norm = tensors["final_norm"]
    if fault == "nan":
        norm.values[-1] = math.nan
    if fault == "drift":
        norm.values[-1] += 1.2e-4 + 1.2e-4 * abs(norm.values[-1])
    if fault == "missing":
        del tensors["final_norm"]
    if fault == "shape":
        norm.shape = norm.shape[::-1] if norm.shape[0] > 1 else [norm.shape[1] // 2, 2]
    if fault == "rows":
        norm.shape, norm.values = [norm.shape[0] - 1, norm.shape[1]], norm.values[norm.shape[1]:]
    write(flags["--record"], tensors)
else:
    document = v.read_json(golden / next(c["file"] for c in cases if c["kind"] == "sampler"))
    options = {{key: float(flags[flag]) for key, flag in v.SAMPLING_FLAGS.items()}}
    case = next(c for c in document["cases"] if not c["edits"]
                and options == {{k: float(x) for k, x in {{**document["defaults"], **c["options"]}}.items()}})
    pairs = [[i, p] for i, p in zip(case["ids"], case["probabilities"])]
    if fault == "survivor" and len(pairs) > 1:
        pairs.pop()
    if fault == "probability":
        pairs[0][1] *= 0.99
    if fault == "null":
        pairs[0][1] = None
    print(json.dumps({{"candidates": [{{"id": i, "probability": p}} for i, p in pairs]}}))
'''


class Sandbox(unittest.TestCase):
    """A copy of golden/ to spoil, and the stand-in."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="verify_golden_test.")
        cls.golden = pathlib.Path(cls.folder.name).resolve() / "golden"
        shutil.copytree(ROOT / "golden", cls.golden)
        cls.fs = cls.golden.parent / "fs"
        cls.fs.write_text(STAND_IN.format(python=sys.executable, root=str(ROOT), golden=str(cls.golden)))
        cls.fs.chmod(cls.fs.stat().st_mode | stat.S_IXUSR)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def verify(self, *arguments, fault="", fs=None):
        """-> (exit status, stdout)."""
        done = subprocess.run([sys.executable, str(SCRIPT), "--fs", str(fs or self.fs), "--golden", str(self.golden),
                               *arguments], env={**os.environ, "FAULT": fault}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def spoil(self, name, change):
        """Rewrites a golden file's bytes for the length of one test."""
        path = self.golden / name
        kept = path.read_bytes() if path.exists() else None
        self.addCleanup(lambda: path.unlink() if kept is None else path.write_bytes(kept))
        changed = change(kept)
        path.unlink() if changed is None else path.write_bytes(changed)

    def assert_fails(self, status, name, *arguments, **how):
        got, text = self.verify(*arguments, **how)
        self.assertEqual(got, status, text)
        lines = [line for line in text.splitlines() if line.startswith("FAIL") and name in line]
        self.assertTrue(lines, f"no FAIL line names {name}:\n{text}")
        self.assertNotIn(" 0 failed", text.splitlines()[-1])


def flip(data, at):
    data = bytearray(data)
    data[at] ^= 0x10
    return bytes(data)


class RightValues(Sandbox):
    def test_every_case_passes_and_the_real_model_is_said_to_be_left_out(self):
        status, text = self.verify()
        self.assertEqual(status, 0, text)
        self.assertRegex(text.splitlines()[-1], r"^\d+ passed, 0 failed, 3 skipped$")
        self.assertIn("skip qwen3-0.6b/figures", text)
        cases = json.loads((self.golden / "manifest.json").read_text())["cases"]
        self.assertEqual(text.count("\nok "), len(cases))

    def test_json_says_the_same(self):
        status, text = self.verify("--json", "--only", "tiny-odd/*")
        document = json.loads(text)
        self.assertEqual((status, document["failed"], document["passed"]), (0, 0, 2))
        self.assertEqual([r["worst_percent"] for r in document["results"] if "values" in r], [0.0])


class GoldenFiles(Sandbox):
    def test_a_flipped_byte_in_any_file(self):
        for name in json.loads((self.golden / "manifest.json").read_text())["files"]:
            with self.subTest(name):
                path = self.golden / name
                kept = path.read_bytes()
                try:
                    path.write_bytes(flip(kept, len(kept) // 2))
                    self.assert_fails(3, name)
                finally:
                    path.write_bytes(kept)

    def test_a_truncated_file(self):
        self.spoil("tiny_taps.safetensors", lambda data: data[:-1])
        self.assert_fails(3, "tiny_taps.safetensors")

    def test_a_missing_file(self):
        self.spoil("tiny/config.json", lambda data: None)
        self.assert_fails(3, "tiny/config.json")

    def test_a_file_that_the_manifest_does_not_list(self):
        self.spoil("stray.json", lambda data: b"{}")
        self.assert_fails(3, "stray.json")

    def test_a_manifest_that_is_not_json(self):
        self.spoil("manifest.json", lambda data: data[: len(data) // 2])
        self.assert_fails(3, "manifest.json")

    def test_golden_values_that_are_wrong_under_a_right_sha256(self):
        """A golden file replaced together with its pin: the values themselves must still be complete and finite."""
        sys.path.insert(0, str(ROOT))
        import verify_golden

        for fault, change in (("NaN", lambda data: data[:-4] + struct.pack("<f", float("nan"))),
                              ("truncated", lambda data: data[:-4])):
            with self.subTest(fault):
                path, manifest = self.golden / "tiny-odd_taps.safetensors", self.golden / "manifest.json"
                kept, listed = path.read_bytes(), manifest.read_text()
                try:
                    path.write_bytes(change(kept))
                    document = json.loads(listed)
                    document["files"][path.name].update(bytes=path.stat().st_size,
                                                        sha256=verify_golden.sha256_of(path))
                    manifest.write_text(json.dumps(document))
                    status, text = self.verify("--only", "tiny-odd/taps")
                    self.assertNotEqual(status, 0, text)
                    self.assertIn("FAIL tiny-odd/taps", text)
                finally:
                    path.write_bytes(kept)
                    manifest.write_text(listed)


class Answers(Sandbox):
    def test_taps(self):
        for fault in ("nan", "drift", "missing", "shape", "rows", "truncated", "status"):
            with self.subTest(fault):
                self.assert_fails(1, "tiny/taps", "--only", "tiny/taps", fault=fault)

    def test_last_row(self):
        for fault in ("nan", "drift", "missing", "rows", "truncated", "usurper"):
            with self.subTest(fault):
                self.assert_fails(1, "qwen3-0.6b-synthetic/129-tokens", "--only", "*/129-tokens", fault=fault)

    def test_greedy(self):
        for fault in ("token", "ids-short", "status"):
            with self.subTest(fault):
                self.assert_fails(1, "tiny-odd/greedy", "--only", "tiny-odd/greedy", fault=fault)

    def test_greedy_stops_at_a_near_tie_and_says_so(self):
        def tie_at_step_2(data):
            document = json.loads(data)
            case = next(c for c in document["cases"] if c["name"] == "tiny-odd/greedy")
            case["margins"][2] = case["near_tie"] / 2
            return json.dumps(document).encode()

        self.assert_fails(1, "tiny-odd/greedy", "--only", "tiny-odd/greedy", fault="near-tie")
        self.spoil("manifest.json", tie_at_step_2)
        status, text = self.verify("--only", "tiny-odd/greedy", fault="near-tie")
        self.assertEqual(status, 0, text)
        self.assertIn("stopped at step 2, a near tie", text)

    def test_sampler(self):
        for fault in ("survivor", "probability", "null", "status"):
            with self.subTest(fault):
                self.assert_fails(1, "tiny/sampler", "--only", "tiny/sampler", fault=fault)


class Usage(Sandbox):
    def test_usage_errors(self):
        for arguments in (["--only", "no such case"], ["--bogus"], ["--fs", "/nonexistent/fs"]):
            with self.subTest(arguments):
                self.assertEqual(self.verify(*arguments)[0], 2)

    def test_a_model_that_is_not_the_pinned_one(self):
        self.assert_fails(3, "files", "--model", str(self.golden / "tiny"))


class RealModel(unittest.TestCase):
    """The cases of the real model, on whole tensors that were measured on it, where they lie beside the repository."""

    ASSETS = ROOT.parent / "shared" / "assets" / "qwen3-0.6b-hf"

    def setUp(self):
        if not self.ASSETS.is_dir():
            self.skipTest(f"NOT CHECKED: figures of the real model against its whole tensors: no {self.ASSETS}")
        sys.path.insert(0, str(ROOT))
        import verify_golden

        self.v = verify_golden
        self.pins = verify_golden.read_json(ROOT / "golden/qwen3-0.6b.json")
        full = verify_golden.full_tensors(self.pins, self.ASSETS)
        self.tensors = {key: verify_golden.floats(path.read_bytes()) for key, path in full.values()}
        case = next(case for case in self.pins["cases"] if case["kind"] == "figures")
        self.case = {**case, "model": "", "full_tensors": full}

    def compare(self):
        """compare_figures() on a stand-in whose answers are self.tensors."""
        test, logits = self, self.tensors["logits"]

        class Answers:
            def json(self, *arguments):
                top = sorted(range(len(logits)), key=lambda id: -logits[id])[:10]
                return {"top": [{"id": id, "logit": logits[id]} for id in top], "min": min(logits),
                        "logsumexp": math.log(math.fsum(map(math.exp, logits)))}

            def record(self, case, points, layers):
                return {key: test.v.Tensor([len(values) // 1024, 1024] if key != "logits" else [1, len(values)], values)
                        for key, values in test.tensors.items()}

        return self.v.compare_figures(self.case, Answers(), ROOT / "golden")

    def test_published_figures_are_those_of_the_whole_tensors(self):
        worst, note = self.compare()
        self.assertTrue(worst.passed, worst.place)
        self.assertLess(worst.share, 0.5)
        self.assertEqual(note, "published figures and full tensors")

    def test_one_wrong_value(self):
        for key in self.tensors:
            with self.subTest(key):
                kept = self.tensors[key][777]
                self.tensors[key][777] = kept + 3e-4 + 3e-4 * abs(kept)
                self.assertFalse(self.compare()[0].passed)
                self.tensors[key][777] = kept

    def test_greedy_stops_at_the_known_near_tie(self):
        case = {**next(case for case in self.pins["cases"] if case["kind"] == "greedy"), "model": ""}

        class Answers:
            def __init__(self, ids):
                self.ids = ids

            def model(self, spec):
                return spec

            def json(self, *arguments):
                return {"prompt_ids": case["tokens"], "ids": self.ids}

        note = self.v.compare_greedy(case, Answers(case["ids"][:5] + [9625] + case["ids"][6:]), None)[1]
        self.assertIn("stopped at step 5", note)
        with self.assertRaises(self.v.Mismatch):
            self.v.compare_greedy(case, Answers(case["ids"][:4] + [9625] + case["ids"][5:]), None)


class FaultInMemory(Sandbox):
    def setUp(self):
        super().setUp()
        if not FAULTY.is_file():
            self.skipTest(f"NOT CHECKED: a weight or an operation wrong in memory, because {FAULTY} is not built")
        self.addCleanup(os.environ.pop, "FS_FAULT", None)

    def test_one_weight_changed_in_memory(self):
        for weight in ("down_proj", "lm_head"):  # the second: scores a token that no prompt has
            with self.subTest(weight):
                os.environ["FS_FAULT"] = weight
                self.assert_fails(1, "tiny/taps", "--only", "tiny/taps", fs=FAULTY)
                self.assert_fails(1, "tiny-odd/taps", "--only", "tiny-odd/taps", fs=FAULTY)

    def test_names_the_first_operation_that_differs(self):
        os.environ["FS_FAULT"] = "down_proj"
        status, text = self.verify("--only", "tiny*/taps", fs=FAULTY)
        self.assertEqual(status, 1, text)
        self.assertEqual(text.count("first difference: layer 1 block_out"), 2, text)
        self.assertIn("fs layer-diff -q --a dump:", text)


if __name__ == "__main__":
    unittest.main()
