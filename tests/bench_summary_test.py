"""tools/bench_summary on what fs bench prints.

    FS=build/release/bin/fs python3 -m unittest tests/bench_summary_test.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FS = os.environ.get("FS", str(ROOT / "build/release/bin/fs"))


class BenchSummary(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)

    def bench(self, name, *args):
        file = self.directory / name
        command = [FS, "bench", "-q", "-m", "synthetic:tiny-odd", "-r", "1", "-n", "1", "--output", "json", *args]
        file.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return file

    def summary(self, *files):
        return subprocess.run([sys.executable, ROOT / "tools/bench_summary", *files], capture_output=True, text=True)

    def test_shows_rows_and_kernels(self):
        card = self.bench("card.json", "-p", "0", "--backend", "cuda-emulated", "--kernels", "--step", "graph,persistent")
        processor = self.bench("cpu.json", "-p", "4", "--backend", "cpu", "--no-roofline")
        outcome = self.summary(card, processor)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        lines = outcome.stdout.splitlines()
        self.assertEqual(len(lines), 1 + 2 + 2 + 1)
        rows = json.loads(card.read_text())["results"]
        for line, row in zip(lines[1:3], rows):
            cells = [cell.strip() for cell in line.split("|")]
            self.assertEqual(cells[0], "tg1")
            self.assertEqual(cells[5], row["step"])
            self.assertEqual(cells[6], f"{row['median_ts']:.1f}")
            kernels = cells[9].split(", ")
            self.assertEqual([k.split()[0] for k in kernels], [k["kernel"] for k in row["kernels"]])
            self.assertEqual(kernels[1].split()[1], f"{1e6 * row['kernels'][1]['seconds']:.0f}")
        self.assertEqual([len(line.split("|")) for line in lines[3:5]], [9, 9])  # no kernels
        self.assertTrue(lines[3].endswith("-"))
        self.assertTrue(lines[5].startswith("cuda-emulated: memory copies "))

    def test_refuses_what_is_no_whole_run(self):
        cut = self.bench("cut.json", "-p", "0", "--backend", "cpu", "--no-roofline")
        cut.write_text(cut.read_text().replace('"complete":true', '"complete":false'))
        self.assertIn("was cut short after 1 rows", self.summary(cut).stderr)
        self.assertEqual(self.summary(cut).returncode, 1)
        for text in ("", "[]", '{"results":[]}', "| a table |"):
            cut.write_text(text)
            outcome = self.summary(cut)
            self.assertEqual(outcome.returncode, 1)
            self.assertEqual(len(outcome.stderr.splitlines()), 1, outcome.stderr)
        self.assertIn("No such file", self.summary(self.directory / "none").stderr)
        self.assertEqual(self.summary().returncode, 2)


if __name__ == "__main__":
    unittest.main()
