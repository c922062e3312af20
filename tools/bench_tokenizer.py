#!/usr/bin/env python3
"""Tokenizer throughput beside Hugging Face tokenizers, one thread each, on one text.

    pip install tokenizers==0.22.2
    tools/bench_tokenizer.py --fs build/release/bin/fs --tokenizer DIR TEXT

DIR holds tokenizer.json. `fs tokenize --count` is a whole process: its time on an empty file, which is loading, is
taken off. Times are CPU seconds (user and system), the least of a few runs, so that a busy machine matters less.
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def child_seconds(command):
    """CPU seconds of a command and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fs", default="build/release/bin/fs")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("text", help="a UTF-8 file, 10 MB or so")
    args = parser.parse_args()

    import tokenizers

    with open(args.text, encoding="utf-8", newline="") as file:
        text = file.read()
    megabytes = len(text.encode()) / 1e6

    with tempfile.NamedTemporaryFile() as empty:
        def fs_run(path):
            return min(child_seconds([args.fs, "tokenize", "--model", args.tokenizer, "--count", "-f", path]) for _ in range(args.runs))

        load, _ = fs_run(empty.name)
        whole, count = fs_run(args.text)
    encode = whole - load
    print(f"fs:          {megabytes / encode:7.1f} MB/s  {encode:.3f} s for {megabytes:.1f} MB, {int(count)} ids; start and load {load:.3f} s")

    start = time.process_time()
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    load = time.process_time() - start
    best = float("inf")
    for _ in range(min(args.runs, 3)):
        start = time.process_time()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        best = min(best, time.process_time() - start)
    print(f"tokenizers:  {megabytes / best:7.1f} MB/s  {best:.3f} s, {len(ids)} ids; load {load:.3f} s")
    print(f"ratio:       {best / encode:7.1f}")
    return 0 if len(ids) == int(count) else "the counts of ids differ"


if __name__ == "__main__":
    sys.exit(main())
