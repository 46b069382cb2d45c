#!/usr/bin/env python3
"""Holds the dependencies to what this package promises its users.

Each must come from crates.io, under a licence listed here, and in one version unless a reason is listed here. An entry
that is no longer needed fails too, so that the lists stay true. Known vulnerabilities are not looked up: that needs a
network, and the tests do not.

    tests/dependencies.py            checks Cargo.lock with all features, on all platforms
    tests/dependencies.py --test     checks this program
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# Licences that ask for no more than a notice. A choice ("MIT OR GPL-3.0") needs one of them.
LICENCES = {
    "Apache-2.0",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
}

SQLX = "sqlx 0.9 hashes its statements and migrations with the older RustCrypto line; ours is the newer one"
RING = "the program's TLS to databases: ring 0.17 is one version behind"
SYN = "procedural macros are moving from syn 2 to syn 3; no syn ends up in a program"

# Crates that may be there in the versions named, and why.
DUPLICATES = {
    "base64": ({"0.21", "0.22"}, "the tests' standardwebhooks 1.0 is one version behind"),
    "block-buffer": ({"0.10", "0.12"}, SQLX),
    "cpufeatures": ({"0.2", "0.3"}, SQLX),
    "crypto-common": ({"0.1", "0.2"}, SQLX),
    "digest": ({"0.10", "0.11"}, SQLX),
    "getrandom": ({"0.2", "0.4"}, RING),
    "hashbrown": ({"0.16", "0.17"}, "sqlx 0.9, by way of hashlink, is one version behind indexmap"),
    "sha2": ({"0.10", "0.11"}, SQLX),
    "syn": ({"2", "3"}, SYN),
    "windows-sys": ({"0.52", "0.61"}, RING),
}

SOURCE = "registry+https://github.com/rust-lang/crates.io-index"


def main():
    root = Path(__file__).resolve().parent.parent
    packages = packages_in_use(root)
    lock = (root / "Cargo.lock").read_text()
    faults = licence_faults(packages) + duplicate_faults(packages) + source_faults(lock)
    for fault in faults:
        print(f"dependencies: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"{len(packages)} packages: licences, versions and sources as promised")
    return 0


def packages_in_use(root):
    """Name, version and licence of all that can end up in a build. The lock file alone also has what none reaches."""
    tree = ["cargo", "tree", "--locked", "--all-features", "--target", "all", "--edges", "normal,build,dev"]
    shape = ["--prefix", "none", "--format", "{p}|{l}"]
    shown = subprocess.run(tree + shape, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    packages = set()
    for line in shown.splitlines():
        package, _, licence = line.removesuffix(" (*)").partition("|")
        name, version = package.split()[:2]
        packages.add((name, version.removeprefix("v"), licence))
    return sorted(packages)


def licence_faults(packages):
    return [
        f"{name} {version} has the licence '{licence}', which is not on the list"
        for name, version, licence in packages
        if not is_allowed(licence)
    ]


def is_allowed(licence):
    """Whether an SPDX expression, or its older form with a slash for OR, can be met with the licences on the list."""
    words = re.findall(r"[()]|[^\s()]+", licence.replace("/", " OR "))
    try:
        allowed, rest = either(words)
    except IndexError:
        return False
    return allowed and not rest


def either(words):
    allowed, words = both(words)
    while words and words[0] == "OR":
        other, words = both(words[1:])
        allowed = allowed or other
    return allowed, words


def both(words):
    allowed, words = single(words)
    while words and words[0] == "AND":
        other, words = single(words[1:])
        allowed = allowed and other
    return allowed, words


def single(words):
    if words[0] == "(":
        allowed, words = either(words[1:])
        return allowed and words[0] == ")", words[1:]
    licence, words = words[0], words[1:]
    if words and words[0] == "WITH":
        # An exception only takes obligations away.
        words = words[2:]
    return licence in LICENCES, words


def duplicate_faults(packages):
    versions = defaultdict(set)
    for name, version, _ in packages:
        versions[name].add(version)
    faults = []
    for name, found in sorted(versions.items()):
        lines = {line_of(version) for version in found}
        allowed, _ = DUPLICATES.get(name, (set(), ""))
        if len(found) > 1 and (lines != allowed or len(lines) != len(found)):
            faults.append(f"{name} is there in {len(found)} versions, {', '.join(sorted(found))}: no reason is listed")
    for name in sorted(DUPLICATES):
        if len(versions[name]) < 2:
            faults.append(f"{name} is listed as a duplicate and is none: take it off the list")
    return faults


def line_of(version):
    """What Cargo takes for compatible: the first part of a version that is not zero."""
    major, minor, *_ = version.split(".")
    return f"0.{minor}" if major == "0" else major


def source_faults(lock):
    sources = re.findall(r'^source = "(.*)"$', lock, re.MULTILINE)
    return [f"a dependency comes from {source}" for source in sorted(set(sources)) if source != SOURCE]


def test():
    for licence in ["MIT", "GPL-3.0 OR MIT", "Apache-2.0/MIT", "(MIT OR GPL-3.0) AND Zlib", "Apache-2.0 WITH X OR GPL-3.0"]:
        assert is_allowed(licence), licence
    for licence in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT GPL-3.0", "MIT OR"]:
        assert not is_allowed(licence), licence
    honest = [(n, f"{line}.1.0", "MIT") for n, (lines, _) in DUPLICATES.items() for line in lines]
    assert duplicate_faults(honest) == []
    assert len(duplicate_faults(honest + [("new", "1.0.0", "MIT"), ("new", "2.0.0", "MIT")])) == 1
    assert len(duplicate_faults(honest + [("syn", "4.0.0", "MIT")])) == 1
    assert len(duplicate_faults([p for p in honest if p[0] != "syn"])) == 1
    assert source_faults(f'source = "{SOURCE}"\n') == []
    assert len(source_faults('source = "git+https://example.com/x"\n')) == 1
    print("the dependency check finds what it should")
    return 0


if __name__ == "__main__":
    sys.exit(test() if sys.argv[1:] == ["--test"] else main())
