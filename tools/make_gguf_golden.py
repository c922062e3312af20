#!/usr/bin/env python3
"""Writes golden/gguf_blocks.json: blocks of every GGUF type that fs reads, and the values that they stand for.

The oracle is the `gguf` package of llama.cpp's authors (pip install gguf; written with 0.19.0): its dequantiser for every
type, its quantiser for Q8_0. Blocks are random bytes under chosen fp16 scales, ordinary, subnormal, negative and zero, so
that every bit of a block counts. Bytes are written as hexadecimal digits, fp32 values as their little-endian bytes.

    tools/make_gguf_golden.py && tools/make_golden.py --rehash
"""
import json
import pathlib

import gguf
import numpy as np

# Where the fp16 scales stand in a block, in bytes.
TYPES = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
SCALES = [0.0123, -0.75, 3.1e-6, 0.0]  # one block each; the third is subnormal in fp16


def hexadecimal(array: np.ndarray) -> str:
    return np.ascontiguousarray(array).tobytes().hex()


def blocks_of(name: str, places: list[int], random: np.random.Generator) -> dict:
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (len(SCALES), size), dtype=np.uint8)
    for block, scale in zip(blocks, SCALES):
        for place in places:
            block[place : place + 2] = np.frombuffer(np.float16(scale * (1 + place / 7)).tobytes(), np.uint8)
    values = gguf.quants.dequantize(blocks, kind)
    assert values.shape == (len(SCALES), elements) and values.dtype == np.float32 and np.isfinite(values).all()
    return {"block_elements": elements, "block_bytes": size, "blocks": hexadecimal(blocks), "values": hexadecimal(values)}


def quantised(random: np.random.Generator) -> dict:
    """Q8_0 from fp32: ordinary rows, one of zeroes, ties between two integers, one outlier."""
    rows = random.standard_normal((6, 32)).astype(np.float32)
    rows[1] = 0
    rows[2] = np.arange(32, dtype=np.float32) / 2 - 8
    rows[2, 0] = 63.5  # a scale of one half: the others are integers and halves
    rows[3, 7] = 1000
    rows[4] *= 1e-6
    rows[5] = -rows[0]
    blocks = gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0)
    return {"input": hexadecimal(rows), "blocks": hexadecimal(blocks)}


def main() -> None:
    random = np.random.default_rng(5)
    document = {"dequantize": {name: blocks_of(name, places, random) for name, places in TYPES.items()}, "quantize_q8_0": quantised(random)}
    path = pathlib.Path(__file__).parent.parent / "golden" / "gguf_blocks.json"
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
