#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp: what the oracle's Unicode data says of every code point.

    pip install tokenizers==0.22.2 unicodedata2
    python3 tools/unicode_tables.py > src/text/unicode_tables.cpp

Hugging Face tokenizers carries two Unicode versions of its own: Oniguruma's for \\p{L}, \\p{N} and \\s (newer than
Debian 12's libraries: 9,000 more letters) and an old one for NFC (Unicode 9: later combining marks are inert to it).
Ids must not depend on the libraries of the machine, so both are asked here, for all 1,112,064 code points.
unicodedata2 only proposes candidates for the NFC tables; whether the oracle knows one is always tried.
"""
import sys

import unicodedata2
from tokenizers import Regex, __version__, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str


def matching(pattern):
    """Code points that match a one-character class."""
    text = "".join(map(chr, CODE_POINTS))
    rest = set()
    for _, (begin, end) in pre_tokenizers.Split(Regex(pattern + "+"), "removed").pre_tokenize_str(text):
        rest.update(CODE_POINTS[begin:end])
    return set(CODE_POINTS) - rest


def composing():
    """(active, starters): code points that NFC may change, move or join to what is before them; and those that an
    active one may join or take apart. All others are copied as they are and nothing passes them."""
    active, starters = set(), set()
    for c in CODE_POINTS:
        char = chr(c)
        if unicodedata2.combining(char):
            probes = ("a\u0345" + char, "a" + char + "\u0334")  # the highest and the lowest combining class
            if any(nfc(probe) != probe for probe in probes):
                active.add(c)
        if nfc(char) != char:
            active.add(c)
        elif nfd(char) != char and not 0xAC00 <= c <= 0xD7A3:
            parts = unicodedata2.decomposition(char).split()
            first, second = (int(part, 16) for part in parts)
            assert nfc(chr(first) + chr(second)) == char, hex(c)
            starters.update((first, c))  # a composed one too: a mark may go in between its parts
            active.add(second)
    active.update(range(0x1161, 0x1176), range(0x11A8, 0x11C3))  # Hangul vowels and final consonants
    starters.update(range(0x1100, 0x1113), range(0xAC00, 0xD7A4))  # initial consonants, syllables
    return active, starters - active


def ranges(code_points):
    result = []
    for c in sorted(code_points):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def emit(name, comment, code_points):
    spans = ranges(code_points)
    print(f"/// {comment}: {len(code_points)} code points.\nconst CodePointRange {name}_array[] = {{")
    for i in range(0, len(spans), 6):
        print("    " + " ".join(f"{{0x{a:X}, 0x{b:X}}}," for a, b in spans[i : i + 6]))
    print("};\n")
    return f"const std::span<const CodePointRange> {name}_ranges = {name}_array;"


def main():
    print(f"""// Written by tools/unicode_tables.py from tokenizers {__version__}: do not edit.
// That script says why these are not a library's.
// clang-format off
#include "text/unicode_tables.h"

namespace fs::text::unicode {{
namespace {{
""")
    active, starters = composing()
    spans = [
        emit("letter", r"\p{L}", matching(r"\p{L}")),
        emit("number", r"\p{N}", matching(r"\p{N}")),
        emit("space", r"\s", matching(r"\s")),
        emit("nfc_active", "NFC may change, move or join these to what is before them", active),
        emit("nfc_starter", "NFC may join an active code point to these, or take them apart for it", starters),
    ]
    print("}  // namespace\n\n" + "\n".join(spans) + "\n\n}  // namespace fs::text::unicode")


if __name__ == "__main__":
    sys.exit(main())
