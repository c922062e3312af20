"""tools/bench_peers with stand-ins for fs and its peers that say what they are told to.

    python3 -m unittest tests/bench_peers_test.py
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Answers as fs bench and llama-bench do, with the next of its rates; notes its arguments in the log that all share.
FAKE = """#!{python}
import json, pathlib, sys
name, rates, log, depth_flag = {name!r}, {rates!r}, pathlib.Path({log!r}), {depth_flag!r}
if sys.argv[1:] == ["--help"]:
    print(depth_flag)
    sys.exit()
lines = log.read_text().splitlines() if log.exists() else []
log.write_text("\\n".join(lines + [json.dumps([name] + sys.argv[1:])]) + "\\n")
if sys.argv[1] == "quantize":
    pathlib.Path(sys.argv[-1]).write_text("GGUF")
    sys.exit()
rate = rates[sum(json.loads(line)[0] == name and "quantize" not in line for line in lines) % len(rates)]
if rate is None:
    sys.exit("out of order")
if name == "fs":
    print(json.dumps(dict(build="fs 0 (fake)", median_ts=rate, limit_share=rate / 100 if rate > 5 else None)))
else:
    print("a line of its own\\n[\\n  " + json.dumps(dict(build_commit="abc", avg_ts=0, samples_ts=[rate, rate / 2, 9 * rate])) + "\\n]")
"""


class BenchPeers(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.directory = pathlib.Path(self.temporary.name)
        self.log = self.directory / "log"

    def program(self, name, rates, depth_flag="-d, --n-depth <n>"):
        path = self.directory / name
        path.write_text(FAKE.format(python=sys.executable, name=name, rates=rates, log=str(self.log), depth_flag=depth_flag))
        path.chmod(0o755)
        return path

    def bench(self, *arguments):
        return subprocess.run([sys.executable, str(ROOT / "tools/bench_peers"), "--fs", str(self.directory / "fs"), "--directory",
                               str(self.directory / "gguf"), "-t", "2", *arguments], capture_output=True, text=True, check=False)

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def test_runs_alternate_and_the_ratio_is_the_median_of_the_pairs(self):
        # The ratios are 2, 1/2 and 3: their median is 2, where the ratio of the medians is 1 and that of the means 2.
        self.program("fs", [20.0, 10.0, 90.0])
        peer = self.program("peer", [10.0, 20.0, 30.0])
        result = self.bench("--peer", f"peer={peer},-fa 1", "--format", "q8_0", "-p", "0", "-n", "8", "--pairs", "3",
                            "--fs-args=--act int8")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| q8_0 | 2 | tg8 | 20.00 | 20% | 20.00 | **2.00** (0.50 to 3.00) |", result.stdout)
        self.assertIn("peer abc -fa 1", result.stdout)
        calls = self.calls()
        self.assertEqual([call[0] for call in calls], ["fs"] + ["fs", "peer"] * 3)
        self.assertEqual(calls[0][1:6], ["quantize", "-q", "--dtype", "q8_0", "synthetic:qwen3-0.6b"])
        self.assertEqual(calls[0][6], calls[2][2])  # what was written is what the peer reads
        self.assertIn("-fa", calls[2])
        for call in calls[1:3]:
            self.assertEqual(call[call.index("-r") + 1], "3")
        self.assertEqual(calls[1][-2:], ["--act", "int8"])

    def test_an_older_peer_spells_depths_its_own_way(self):
        self.program("fs", [4.0])
        peer = self.program("old", [2.0], depth_flag="-gp <pp,tg>")
        result = self.bench("--peer", f"old={peer}", "--format", "int4", "--gguf", "int4=given.gguf", "-p", "16", "-n", "8", "-d", "0,32",
                            "--pairs", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| int4 | 2 | pp16@d32 | 4.00 | - | - | - |", result.stdout)
        self.assertIn("| int4 | 2 | tg8@d32 | 4.00 | - | 2.00 | **2.00** (2.00 to 2.00) |", result.stdout)
        olds = [call for call in self.calls() if call[0] == "old"]
        self.assertEqual(len(olds), 3)
        self.assertIn("given.gguf", olds[0])
        self.assertEqual(olds[2][-2:], ["-gp", "32,8"])

    def test_a_program_that_fails_is_an_error(self):
        self.program("fs", [None])
        peer = self.program("peer", [1.0])
        result = self.bench("--peer", f"peer={peer}", "--gguf", "bf16=x", "--gguf", "q8_0=y")
        self.assertEqual(result.returncode, 1)
        self.assertIn("out of order", result.stderr)
        self.assertEqual(self.bench("--peer", "nonsense").returncode, 1)


if __name__ == "__main__":
    unittest.main()
