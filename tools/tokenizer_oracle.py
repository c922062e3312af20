#!/usr/bin/env python3
"""Asks Hugging Face tokenizers, the oracle, for ids. For whoever changes src/text; users never need it.

    pip install tokenizers==0.22.2

The committed golden files (a few hundred of the nastiest strings; sha256 of the tokenizer.json inside):
    tools/tokenizer_oracle.py --tokenizer golden/tiny/tokenizer.json --out golden/tokenizer/tiny_cases.json
    tools/tokenizer_oracle.py --tokenizer QWEN3/tokenizer.json       --out golden/tokenizer/qwen3_cases.json

Added tokens with every flag, in small tokenizers made here:
    tools/tokenizer_oracle.py --flags golden/tokenizer/flags_cases.json

As many as you like, compared by tokenizer_test:
    tools/tokenizer_oracle.py --tokenizer PATH --replay cases.bin --random 50000 --seed 1
    tools/tokenizer_oracle.py --tokenizer PATH --replay cases.bin --every-code-point
    tools/tokenizer_oracle.py --tokenizer PATH --replay cases.bin --texts FILE…
    FS_REPLAY_TOKENIZER=PATH FS_REPLAY_CASES=cases.bin build/release/bin/tokenizer_test --gtest_filter='*Replay*'

A replay file is a sequence of records, numbers little-endian: kind ('e': encode(text) gives ids, 'd': decode(ids) gives
text), u32 bytes of text, text, u32 count of ids, u32 ids.
"""
import argparse
import array
import hashlib
import json
import random
import struct
import sys

import tokenizers

# (first, last, weight): where random characters come from.
BLOCKS = [
    (0x20, 0x7E, 12), (0x00, 0x1F, 1), (0x7F, 0xA0, 1), (0xA1, 0x24F, 3), (0x300, 0x36F, 2), (0x370, 0x3FF, 1),
    (0x400, 0x52F, 2), (0x590, 0x5FF, 1), (0x600, 0x6FF, 2), (0x900, 0x97F, 2), (0x980, 0xDFF, 1), (0xE00, 0xE7F, 1),
    (0xF00, 0xFFF, 1), (0x1100, 0x11FF, 2), (0x1AB0, 0x1AFF, 1), (0x1D00, 0x1FFF, 2), (0x2000, 0x206F, 2),
    (0x2070, 0x2BFF, 2), (0x3000, 0x30FF, 2), (0x3130, 0x318F, 1), (0x4E00, 0x9FFF, 4), (0xA000, 0xABFF, 1),
    (0xAC00, 0xD7A3, 2), (0xE000, 0xF8FF, 1), (0xF900, 0xFAFF, 1), (0xFB00, 0xFFFD, 2), (0x10000, 0x1FFFF, 2),
    (0x1F300, 0x1FAFF, 2), (0x20000, 0x3FFFF, 1), (0xE0000, 0x10FFFF, 1),
]
WORDS = """the The THE Hello world don't DON'T I'll we've you're it's IT'S he'd I'm 'tis 's 'S 'ſ 'LL 'lL o'clock naïve
café résumé Zürich straße ﬁn İstanbul ıſ Ångström Привет мир Ελλάδα σίσυφος שלום عربى हिन्दी नमस्ते বাংলা தமிழ் ไทย ភាសា မြန်မာ 日本語
テキスト ひらがな 中文 漢字 한국어 각 값 x1 1x 3.14159 1,000,000 ½ ² ⅷ ٣٤ ௧ def return lambda: while(1){} printf("%d\\n"); /* // # -> == != <=
&& || :: <T> <div> </div> http://a.b/c?d=e&f=%20 e-mail@x.org C:\\dir\\file a_b_c camelCase $x @y #z ... — “quoted” 👍 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 e\u0301 a\u0328\u0301
\u1112\u1161\u11ab ㈜ ﷺ <|im_start|> <|im_end|> <|im_start <|im_ start|> <|endoftext|> <think> </think> <think </think>> <tool_call> |im_end|>
<||> <|<|im_end|>|>""".split()
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\v", "\f"]
NASTY = [
    "", " ", "  ", "\n", " \n", "\n ", "\r\n", "\r\r\n\n", "\t", "\t\ta", " \t a", "a ", "a  ", "a   b", "a\n\n b", "a \n \n b", "a\u00a0\u00a0b",
    "\u3000\u3000中", "\x00", "a\x00b", "\x7f", "\x85\x85a", "\u2028a\u2029", "\ufeffBOM", "\u200b\u200b", "\u180e a", "1234567890", "1 2  3", "٠١٢٣", "x²³½",
    "'s", "'S", "'ſ", "'t", "'re", "'RE", "'rE", "'ve", "'m", "'ll", "'lL", "'d", "'x", "''s", "a's", "1's", " 's", "'sa", "'ſa", "'rea",
    "'r", "'l", "'", "''", "'\n", "'ß", "'ﬆ", "don't", "DON'T", "don’t", "I'll've", "!!!", " !!!", "  !!!", "!!!\n\n\n", "!!!\r\n a", "!a", "!!a",
    " !a", "\t!a", "…a", "a…", "()\n()", "<|im_start|>", " <|im_start|> ", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|", "<|im_start|>>",
    "<<|im_start|>", "<|im_start|><|im_start|>", "<|IM_START|>", "<think>\n\n</think>\n\n", "< think>", "<think", "<tool_call>{}</tool_call>",
    "e\u0301", "\u00e9", "a\u0323\u0301", "a\u0301\u0323", "\u1ea5\u0323", "\u0344", "\u0340", "\u212b", "\u2126", "\u0958", "\u0915\u093c", "\ufb1d",
    "\u1100\u1161", "\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01\u11a8", "\u1100\u11a8", "\u1161\u11a8", "\uac00\u1161", "\u11a7", "\uac00\u11a7",
    "\u3131\u314f", "\uf900", "\U0002f800", "\U0001d15e", "\U0001109a", "\U00011099\U000110ba", "\u0301", "\u0301\u0301", " \u0301", "\n\u0301",
    "<\u0338", "=\u0338", "\u05d0\u05b8\u05b7", "\u0f71\u0f72\u0f74", "\u0f73", "a\u0345\u0301", "\u03b1\u0345\u0301", "a\u1dfa\u0323", "a\u1abf\u0323",
    "\U00011935\U00011930", "\U00011938", "\U00011938\u0301", "\U000105d2\u0307", "\u0898a\u0323", "\u3099", "\u304b\u3099", "\u309d\u3099",
    "\U0001e4d0", "\U0001e5d0", "\U00010d40", "\U00016d70", "\U000323b0", "\ua7ce", "\U00011dd0", "\u088f", "\U0001e6c0", "\U00011de0",
    "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷🇩🇪", "1️⃣", "☺\ufe0f", "\ud7ff\ue000", "\uffff", "\ufffe", "\U0010ffff", "\ufffd", "ab\ufffdcd", "Ġ", "Ċ", "Ġa", "âĢĻ",
    "the quick brown fox jumps over the lazy dog", "for (int i = 0; i < n; ++i) {\n        sum += x[i];\n\t}\n", "日本語のテキスト、そして中文。", "안녕하세요 세계",
    "สวัสดีชาวโลก", "नमस्ते दुनिया", "مرحبا بالعالم", "Ἀρχιμήδης", "ЗДРАВСТВУЙ, мир!", "Tiếng Việt", "Tie\u0302\u0301ng Vie\u0323\u0302t", "ⅣⅤ", "①②", "㍿", "ﬀ ﬁ",
]
# What every code point is put into. The middle ones try NFC from all sides: low and high combining classes, Hangul.
CONTEXTS = ["{}", "a{}b", "1{}2", " {}", "  {} ", "!{}!", "{}\n", "{0}{0}", "'{}", "'l{}", "'r{}", "'v{}", "{}'s", "x'{}e", "{}\u0301", "{}\u0338", "{}\u3099",
            "{}\u0345\u0334", "a\u0345{}", "a{}\u0334", "a\u0301{}\u0323", "\u1100{}", "\uac00{}", "{}\u1161", "{}\u11a8", "{}\U000110ba", "\u304b{}"]


def random_character(rng):
    first, last, _ = rng.choices(BLOCKS, [block[2] for block in BLOCKS])[0]
    return chr(rng.randint(first, last))


def random_piece(rng, size):
    """A few characters of one kind; `size` bounds how many."""
    n = rng.randint(1, max(1, size))
    kind = rng.randrange(9)
    if kind == 0:
        return random_character(rng) * n
    if kind == 1:
        return "".join(random_character(rng) for _ in range(n))
    if kind == 2:
        return rng.choice(SPACES) * n
    if kind == 3:
        return "".join(rng.choice("0123456789٣½") for _ in range(n))
    if kind == 4:
        return "".join(rng.choice("!?.,;:'\"()[]{}<>|/\\-_=+*&^%$#@~`…—") for _ in range(n))
    if kind == 5:
        return "".join(rng.choice("aeiourstlnd'S ſ\n") for _ in range(n))
    if kind == 6:
        return random_character(rng) + "".join(chr(rng.choice([0x300, 0x301, 0x323, 0x334, 0x345, 0x93C, 0x94D, 0x1161, 0x11A8])) for _ in range(n % 6))
    if kind == 7:
        return rng.choice(NASTY)
    return rng.choice(SPACES[:5]).join(rng.choice(WORDS) for _ in range(n))


def valid(text):
    return "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF)


def random_text(rng):
    size = rng.choice([1, 1, 3, 8, 20, 60])
    if rng.random() < 0.0005:
        size = 2000
    return valid("".join(random_piece(rng, size) for _ in range(rng.randint(1, 8))))


def long_texts(rng):
    """1 MiB each: what makes a quadratic tokenizer stand still."""
    mib = 1 << 20
    for unit in ["a", " ", "\n", "aaab", "中", "0", "!", "\u0301", "a\u0323\u0301", "\u0301\u0323", " \n", "\t ", "ab ", "'s", "<|im_end|>", "<|", "\u1100", "é", "ᄀ", "𠀀"]:
        yield unit * (mib // len(unit.encode()))
    yield "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(mib // 3))
    yield "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(mib))
    text = ""
    while len(text.encode()) < mib:
        text += "".join(random_text(rng) for _ in range(200))
    yield text


def texts_of(args, rng):
    if args.random:
        for _ in range(args.random):
            yield random_text(rng)
        yield from long_texts(rng)
    if args.every_code_point:
        points = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
        yield from points
        for context in CONTEXTS:
            for i in range(0, len(points), 512):
                yield "\n".join(context.format(c) for c in points[i : i + 512])
                if context == "{}":
                    yield "".join(points[i : i + 512])
    for path in args.texts:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            text = file.read()
        yield text
        yield from text.splitlines()


def batches(items, size):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    yield batch


def write_replay(args, tokenizer, rng):
    count = 0
    n = tokenizer.get_vocab_size()
    with open(args.replay, "wb") as out:

        def record(kind, text, ids):
            data = text.encode()
            out.write(kind + struct.pack("<I", len(data)) + data + struct.pack("<I", len(ids)) + array.array("I", ids).tobytes())

        for batch in batches(texts_of(args, rng), 1000):
            for text, encoding in zip(batch, tokenizer.encode_batch(batch, add_special_tokens=False)):
                record(b"e", text, encoding.ids)
                count += 1
                if args.random:
                    record(b"d", tokenizer.decode(encoding.ids, skip_special_tokens=False), encoding.ids)
                    ids = [rng.randrange(n) for _ in range(rng.randint(0, 12))]
                    record(b"d", tokenizer.decode(ids, skip_special_tokens=False), ids)
    print(f"{args.replay}: {count} texts")


def write_golden(args, tokenizer, sha256, rng):
    texts = list(NASTY)
    texts += [word for word in WORDS if word not in texts]
    texts += [left + right for left in ("a", " ", "1", "!", "\n") for right in ("\u0301", "'s", " \n", "\n\n ", "中", "٣", "\u00a0b", "🇫🇷")]
    while len(texts) < 620:
        text = random_text(rng)
        if len(text) <= 80:
            texts.append(text)
    n = tokenizer.get_vocab_size()
    id_lists = [[], [0], [n - 1], list(range(0, n, max(1, n // 64)))]
    id_lists += [[rng.randrange(n) for _ in range(rng.randint(1, 12))] for _ in range(60)]
    cases = {
        "tokenizer_sha256": sha256,
        "oracle": f"tokenizers {tokenizers.__version__}",
        "recipe": "tools/tokenizer_oracle.py --tokenizer tokenizer.json --out " + args.out.rsplit("/", 1)[-1],
        "encode": [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts],
        "decode": [{"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False)} for ids in id_lists],
    }
    with open(args.out, "w") as file:
        file.write("{\n")
        for key in ("tokenizer_sha256", "oracle", "recipe"):
            file.write(f" {json.dumps(key)}: {json.dumps(cases[key])},\n")
        lists = []
        for key in ("encode", "decode"):
            lines = ",\n".join("  " + json.dumps(case, separators=(",", ":")) for case in cases[key])
            lists.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        file.write(",\n".join(lists) + "\n}\n")
    print(f"{args.out}: {len(texts)} texts, {len(id_lists)} id sequences")


def byte_level_alphabet():
    """The 256 characters of bytes, by byte (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def small_tokenizer(normalizer, merges, added):
    """A tokenizer.json with a token a byte, `merges`, and `added`: (content, flags) with flags of l, r, n, s."""
    tokens = byte_level_alphabet() + [a + b for a, b in merges]
    ids = {token: i for i, token in enumerate(tokens)}
    n_new = 0
    added_tokens = []
    for content, flags in added:
        token_id = ids.get(content, len(tokens) + n_new)
        n_new += content not in ids
        added_tokens.append({"id": token_id, "content": content, "single_word": False, "lstrip": "l" in flags, "rstrip": "r" in flags,
                             "normalized": "n" in flags, "special": "s" in flags})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": ids, "merges": [list(merge) for merge in merges]},
    }


def write_flags(path, rng):
    merges = [("a", "b"), ("Ġ", "a"), ("Ġ", "Ġ"), ("ab", "c"), ("Ã", "©"), ("<", "u")]
    nfc = {"type": "NFC"}
    sets = [
        (nfc, [("<s>", "s"), ("<l>", "l"), ("<r>", "r"), ("<lr>", "lr"), ("<n>", "n"), ("<nlr>", "nlrs"), ("<s><l>", ""), ("abc", "")]),
        (nfc, [("e\u0301", "n"), ("é", ""), ("<e\u0301>", "ns"), ("a", "r"), ("b b", "lr"), ("<u", "l"), ("Ġ", ""), ("ü", "n")]),
        (None, [("e\u0301", "n"), ("x", "ln"), ("xy", "rs"), ("<|x|>", "lrns"), ("<|", "s"), ("中", "")]),
        (nfc, [("<s>", "s"), (" <w>", "l"), ("\n", "s"), ("  ", ""), ("'s", "n"), ("\u0301", "n"), ("\u00a0", "n")]),
    ]
    lines = []
    for normalizer, added in sets:
        spec = small_tokenizer(normalizer, merges, added)
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
        contents = [content for content, _ in added]
        pool = contents * 3 + [c[:-1] for c in contents] + SPACES + ["a", "b", "abc", " ab", "e", "\u0301", "é", "<", ">", "x", "1", "'s", "中"]
        texts = contents + ["".join(rng.choice(pool) for _ in range(rng.randint(1, 10))) for _ in range(150)]
        cases = []
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        cases = ",\n".join("   " + json.dumps(case, separators=(",", ":")) for case in cases)
        lines.append(f'  {{"tokenizer": {json.dumps(spec, separators=(",", ":"))},\n   "encode": [\n{cases}]}}')
    with open(path, "w") as file:
        file.write(f'{{"oracle": "tokenizers {tokenizers.__version__}", "recipe": "tools/tokenizer_oracle.py --flags flags_cases.json", "tokenizers": [\n')
        file.write(",\n".join(lines) + "\n]}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="tokenizer.json")
    parser.add_argument("--flags", help="golden file of added tokens' flags to write")
    parser.add_argument("--out", help="golden file to write")
    parser.add_argument("--replay", help="replay file to write")
    parser.add_argument("--random", type=int, default=0, help="this many random texts, and some of 1 MiB")
    parser.add_argument("--every-code-point", action="store_true")
    parser.add_argument("--texts", nargs="*", default=[], help="files: whole, and line by line")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.flags:
        write_flags(args.flags, random.Random(args.seed))
    if not args.tokenizer:
        return
    with open(args.tokenizer, "rb") as file:
        data = file.read()
    tokenizer = tokenizers.Tokenizer.from_buffer(data)
    if args.out:
        write_golden(args, tokenizer, hashlib.sha256(data).hexdigest(), random.Random(args.seed))
    if args.replay:
        write_replay(args, tokenizer, random.Random(args.seed))


if __name__ == "__main__":
    sys.exit(main())
