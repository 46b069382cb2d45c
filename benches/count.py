#!/usr/bin/env python3
"""Counts the instructions of one verification, for every scheme that signs in a header.

    benches/count.py              all of them, as lines of JSON
    benches/count.py PROGRAM      the same with a program that is built: the bench `verify`

An instruction count is the same in every run, whatever else the machine does; `callgrind` (valgrind) takes it. It does
not know the processor's own instructions for SHA-256, so that hashing is counted as software does it, with many times as many. So
the functions that hash a block are counted apart: `rest` is all that is done beside them, and what can be compared.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# In `verify.rs`: `counted_calls`.
CALLS = 10
HASHES = re.compile(r"sha\w*::.*compress|soft::|sha512|curve25519|ed25519|p256|primeorder|crypto_bigint|elliptic")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else built()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        told = subprocess.run(
            # Two patterns for one function: callgrind forgets the first option of two that have the same one.
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no",
             "--zero-before=*::counted_calls", "--dump-after=verify*::counted_calls", program, "count"],
            check=True, text=True, capture_output=True,
        ).stdout.splitlines()
        counts = [Count(Path(f"{out}.{part + 1}")) for part in range(len(told))]
    for ours, raw in zip(range(1, len(told), 2), range(0, len(told), 2)):
        scheme = told[ours].split()[0]
        line = {"bench": "count", "scheme": scheme}
        for what, count in (("countersign", counts[ours]), ("raw", counts[raw])):
            line[what] = {"hashing": count.hashing, "rest": count.rest}
        print(json.dumps(line))


def built():
    """The path of the bench, built if need be."""
    directory = Path(__file__).parent
    told = subprocess.run(
        ["cargo", "bench", "--bench", "verify", "--no-run", "--message-format=json"],
        check=True, text=True, stdout=subprocess.PIPE, cwd=directory,
    ).stdout
    artifacts = [json.loads(line) for line in told.splitlines()]
    # The programs of this package are built with it.
    return next(each["executable"] for each in artifacts
                if each.get("executable") and each["target"]["name"] == "verify")


class Count:
    """What one part of callgrind's output says: the cost of each function without what it calls."""

    def __init__(self, path):
        function, hashing, total, of_callee = "", 0, 0, False
        for line in path.read_text().splitlines():
            if line.startswith("fn="):
                function = line.removeprefix("fn=")
            elif line.startswith("calls="):
                # The next line is the cost of what was called, which counts it itself.
                of_callee = True
            elif re.match(r"[+*\-\d]", line):
                cost = 0 if of_callee else int(line.split()[1])
                of_callee = False
                total += cost
                hashing += cost if HASHES.search(function) else 0
        self.hashing, self.rest = hashing // CALLS, (total - hashing) // CALLS


if __name__ == "__main__":
    main()
