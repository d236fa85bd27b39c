"""The architecture ``llama`` of GGUF files, as the record that language models have.

Tensors keep their names; rows of queries and keys have the pairs (2i, 2i + 1) that are turned
together, as llama.cpp orders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np

from tilewright.frontends.gguf.reader import GgufFile
from tilewright.frontends.language.decoder import (
    LARGEST,
    Decoder,
    Sizes,
    Tensor,
    TokenizerData,
    frequencies,
    in_halves,
)
from tilewright.ir.types import Array
from tilewright.numerics.blocks import Blocks

ARCHITECTURE = "llama"


def decoder_of(file: GgufFile) -> Decoder:
    """The model of a file; refuses (``llm-architecture``) other architectures."""
    name = file.field("general.architecture", str)
    if name != ARCHITECTURE:
        raise file.refuse(
            f"its architecture is {name[:80]!r}", code="llm-architecture",
            help=f"of GGUF's, {ARCHITECTURE} alone is compiled",
        )  # fmt: skip

    def count(key: str, default: int | None = None) -> int:
        value = file.field(f"{name}.{key}", int, default)
        if not 0 < value <= LARGEST:
            raise file.refuse(f"{name}.{key} is {value}")
        return value

    heads, width = count("attention.head_count"), count("embedding_length")
    size = count("attention.key_length", max(width // heads, 1))
    sizes = Sizes(
        count("block_count"), width, count("feed_forward_length"),
        heads, count("attention.head_count_kv", heads), size,
        file.shape("token_embd.weight")[0], count("context_length"),
        float(file.field(f"{name}.attention.layer_norm_rms_epsilon", float)),
    )  # fmt: skip
    kind = file.field(f"{name}.rope.scaling.type", str, "none")
    if kind != "none" or file.fields.get(f"{name}.expert_count"):
        raise file.refuse("scaled rotations and experts are not compiled")
    turned = count("rope.dimension_count", size)
    if turned != size or count("attention.value_length", size) != size:
        raise file.refuse(f"heads of {size}, {turned} turned")
    turns = frequencies(float(file.field(f"{name}.rope.freq_base", float, 10000.0)), size)
    if "rope_freqs.weight" in file.tensors:
        turns = turns / file.floats("rope_freqs.weight", (size // 2,))

    def read(tensor: str, shape: tuple[int, ...]) -> Blocks | Array:
        return file.matrix(tensor, shape) if len(shape) == 2 else file.floats(tensor, shape)

    tensors = {
        tensor: Tensor(shape, partial(read, tensor, shape))
        for tensor, (_, shape, _) in file.tensors.items()
        if tensor != "rope_freqs.weight"
    }
    vocabulary = tokenizer_of(file.fields, file)
    return Decoder(
        repr(str(file.path)), sizes, np.asarray(turns), in_halves(tensors, size), vocabulary
    ).checked()


def tokenizer_of(fields: Mapping[str, Any], file: GgufFile) -> TokenizerData | None:
    """The vocabulary of a file's metadata; None where it has none."""

    def get(key: str, default: Any = None) -> Any:
        return fields.get(f"tokenizer.ggml.{key}", default)

    tokens, kinds = get("tokens"), get("token_type", [])
    if not isinstance(tokens, list):
        return None
    ends = (get(f"{name}_token_id") for name in ("eos", "eot"))
    data = TokenizerData(
        str(get("model", "")), str(get("pre", "default")),
        tokens, get("merges", []),
        [number for number, kind in enumerate(kinds) if kind in (3, 4)],
        get("bos_token_id") if get("add_bos_token", False) else None,
        [end for end in ends if isinstance(end, int)],
    )  # fmt: skip
    try:
        return msgspec.convert(msgspec.to_builtins(data), TokenizerData)
    except (msgspec.ValidationError, TypeError) as error:
        raise file.refuse(f"its vocabulary is none: {error}") from error
