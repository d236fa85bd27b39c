"""Small models of Llama's architecture in GGUF files, and their weights as floats.

    python -m tests.llm.tiny tiny.gguf

writes one of random weights. Values are made together with their bytes, so that nothing here reads
what it wrote.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Made = tuple[int, bytes, NDArray[np.float64]]
"""Number of a tensor's type, its bytes, its values."""

FIELDS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "tiny",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
}


def _halves(values: NDArray[np.float32]) -> NDArray[np.float16]:
    return values.astype(np.float16)


def _f32(shape: tuple[int, int], random: np.random.Generator) -> Made:
    values = random.normal(0, 0.1, shape).astype(np.float32)
    return 0, values.tobytes(), values.astype(np.float64)


def _f16(shape: tuple[int, int], random: np.random.Generator) -> Made:
    values = _halves(random.normal(0, 0.1, shape).astype(np.float32))
    return 1, values.tobytes(), values.astype(np.float64)


def _by_block(
    number: int,
    count: int,
    block: Callable[[np.random.Generator], tuple[bytes, list[float]]],
) -> Callable[[tuple[int, int], np.random.Generator], Made]:
    def make(shape: tuple[int, int], random: np.random.Generator) -> Made:
        made = [block(random) for _ in range(shape[0] * shape[1] // count)]
        values = np.array([value for _, values in made for value in values])
        return number, b"".join(data for data, _ in made), values.reshape(shape)

    return make


def _q4_0(random: np.random.Generator) -> tuple[bytes, list[float]]:
    scale = np.float16(random.uniform(0.02, 0.06))
    codes = random.integers(0, 16, 32).tolist()
    data = bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
    return scale.tobytes() + data, [(code - 8) * float(scale) for code in codes]


def _q4_1(random: np.random.Generator) -> tuple[bytes, list[float]]:
    scale = np.float16(random.uniform(0.02, 0.06))
    least = np.float16(-float(scale) * random.uniform(7, 8))
    codes = random.integers(0, 16, 32).tolist()
    data = bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
    values = [code * float(scale) + float(least) for code in codes]
    return scale.tobytes() + least.tobytes() + data, values


def _q8_0(random: np.random.Generator) -> tuple[bytes, list[float]]:
    scale = np.float16(random.uniform(0.001, 0.003))
    codes = random.integers(-128, 128, 32).astype(np.int8)
    return scale.tobytes() + codes.tobytes(), [int(code) * float(scale) for code in codes]


def _q6_k(random: np.random.Generator) -> tuple[bytes, list[float]]:
    scale = np.float16(random.uniform(0.0001, 0.0003))
    scales = random.integers(-64, 64, 16).astype(np.int8)
    codes = random.integers(0, 64, 256).tolist()
    low, high = bytearray(128), bytearray(64)
    for i, code in enumerate(codes):
        half, place = divmod(i, 128)
        low[half * 64 + place % 64] |= (code & 15) << (0 if place < 64 else 4)
        high[half * 32 + place % 32] |= (code >> 4) << (place // 32 * 2)
    values = [(code - 32) * int(scales[i // 16]) * float(scale) for i, code in enumerate(codes)]
    return bytes(low) + bytes(high) + scales.tobytes() + scale.tobytes(), values


KINDS: dict[str, Callable[[tuple[int, int], np.random.Generator], Made]] = {
    "F32": _f32,
    "F16": _f16,
    "Q4_0": _by_block(2, 32, _q4_0),
    "Q4_1": _by_block(3, 32, _q4_1),
    "Q8_0": _by_block(8, 32, _q8_0),
    "Q6_K": _by_block(14, 256, _q6_k),
}


def vocabulary() -> dict[str, Any]:
    """A byte for each token, a few pairs, and one that ends texts, as GPT-2's tokenizers have."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    merges = ["t h", "th e", "Ġ t", "i n"]
    tokens = [letters[byte] for byte in range(256)] + [m.replace(" ", "") for m in merges]
    tokens += ["<|end|>"]
    kinds = [1] * (len(tokens) - 1) + [3]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
    }


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case _:
            each = [_value(item) for item in value]
            kind = each[0][:4]
            return (
                struct.pack("<I", 9)
                + kind
                + struct.pack("<Q", len(each))
                + b"".join(item[4:] for item in each)
            )


def write(
    path: Path, fields: Mapping[str, Any], tensors: Mapping[str, tuple[int, bytes, tuple[int, ...]]]
) -> None:
    """Write a file of these fields and tensors (type, bytes, shape with rows first)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_text(key) + _value(value) for key, value in fields.items())
    data = b""
    for name, (kind, content, shape) in tensors.items():
        head += _text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_tiny(
    path: Path,
    kind: str = "Q4_1",
    output: str | None = None,
    seed: int = 0,
    **fields: Any,
) -> dict[str, NDArray[np.float64]]:
    """Write a model whose matrices are of a kind, and those of tokens of another (``output``);
    its weights by name."""
    random = np.random.default_rng(seed)
    words = vocabulary()
    known = FIELDS | words | {f"llama.{k}".replace("__", "."): v for k, v in fields.items()}
    width, inner = known["llama.embedding_length"], known["llama.feed_forward_length"]
    heads, groups = (known[f"llama.attention.head_count{part}"] for part in ("", "_kv"))
    narrow = width // heads * groups
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(words["tokenizer.ggml.tokens"]), width),
        "output_norm": (width,),
    }
    for layer in range(known["llama.block_count"]):
        each = {
            "attn_norm": (width,), "attn_q": (width, width), "attn_k": (narrow, width),
            "attn_v": (narrow, width), "attn_output": (width, width), "ffn_norm": (width,),
            "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in each.items()}
    tensors: dict[str, tuple[int, bytes, tuple[int, ...]]] = {}
    weights: dict[str, NDArray[np.float64]] = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            ones = (1 + random.normal(0, 0.1, shape)).astype(np.float32)
            made: Made = 0, ones.tobytes(), ones.astype(np.float64)
        else:
            of = output or kind if name == "token_embd" else kind
            made = KINDS[of]((shape[0], shape[1]), random)
        tensors[f"{name}.weight"] = made[0], made[1], shape
        weights[f"{name}.weight"] = made[2]
    write(path, known, tensors)
    return weights


if __name__ == "__main__":
    write_tiny(Path(sys.argv[1]))
