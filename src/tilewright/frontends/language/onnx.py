"""Decoders in ONNX, as Optimum, PyTorch's exporter and ONNX Runtime GenAI write them.

Inputs are ``input_ids``, ``attention_mask``, perhaps ``position_ids``, and keys and values of
earlier tokens for each layer; outputs are logits, and keys and values with those of the new tokens.
The model is imported for a few tokens without a past, and its weights are read off that network
(recognition.py). Files beside it state its context and its vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, TensorShapeProto

from tilewright.errors import refuse
from tilewright.frontends.language.decoder import Decoder
from tilewright.frontends.language.recognition import recognised
from tilewright.frontends.language.transformers import Config, read_json, vocabulary_of_folder
from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.importer import import_onnx
from tilewright.frontends.onnx.reader import read_model
from tilewright.frontends.onnx.tensors import DTYPES
from tilewright.ir.types import Array

TOKENS = 6
"""Tokens of the network that weights are read off, all different."""

CONTEXT = 2048
"""Context of a model of which no file states it."""

_CACHE = re.compile(r"(past|present)\D*?(\d+)\D*(key|value)")
"""Names of inputs and outputs for keys and values: layer and kind."""


def decoder_of_onnx(path: Path) -> Decoder:
    """The model of a file; refuses (``llm-decoder``, ``onnx-``) others than Llama's."""
    source, title = read_model(path), shown(str(path))
    graph = source.model.graph
    matches = [match for value in graph.output if (match := _CACHE.fullmatch(value.name))]
    caches = {(int(match[2]), match[3]): match[0] for match in matches}
    names = ["logits", *(caches[key] for key in sorted(caches))]
    if len(caches) < 2 or all(value.name != "logits" for value in graph.output):
        raise refuse(
            "llm-decoder", "its outputs are not logits, and present.N.key and present.N.value",
            title, "export the model with its cache (text-generation-with-past)",
        )  # fmt: skip
    arrays = _settled(graph, title)
    folder = next((f for f in (path.parent, path.parent.parent) if _stated(f)), path.parent)
    fields = _stated(folder)
    config = Config(title, fields)
    context = config.get("context_length", int, CONTEXT)
    context = config.get("max_position_embeddings", int, context)
    decoder = recognised(import_onnx(source), title, context, arrays, names)
    windows = [size for size in (config.window(), *_windows(graph)) if size is not None]
    data, text = vocabulary_of_folder(folder, fields)
    sizes = replace(decoder.sizes, window=min(windows, default=None))
    return replace(decoder, sizes=sizes, tokenizer=data, vocabulary_file=text).checked()


def _stated(folder: Path) -> dict[str, Any]:
    """What a folder's files say of a model; GenAI's says it of ``model``."""
    fields: dict[str, Any] = {}
    for name in ("genai_config.json", "config.json"):
        content = read_json(folder / name) if (folder / name).is_file() else {}
        inner = content.get("model", content)
        fields |= inner if isinstance(inner, dict) else {}
    return fields


def _windows(graph: GraphProto) -> list[int]:
    """Tokens that operators of attention see at most."""
    stated = [a for n in graph.node for a in n.attribute if a.name == "local_window_size"]
    return [int(attribute.i) for attribute in stated if attribute.i > 0]


def _settled(graph: GraphProto, title: str) -> dict[str, Array]:
    """Inputs for some tokens without a past; their sizes become those of the model's inputs."""
    ones = np.ones((1, TOKENS), np.int64)
    given = {"input_ids": 2 * ones.cumsum(1), "position_ids": ones.cumsum(1) - 1}
    given["attention_mask"] = ones
    arrays: dict[str, Array] = {}
    stored = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        kind = value.type.tensor_type
        dtype = DTYPES.get(kind.elem_type)
        if value.name in stored or dtype is None:
            continue
        if value.name in given:
            array = given[value.name]
        elif _CACHE.fullmatch(value.name) and len(kind.shape.dim) == 4:
            # Sizes that the model leaves open are its operators' own, as there is no past.
            groups, size = (max(kind.shape.dim[axis].dim_value, 1) for axis in (1, 3))
            array = np.zeros((1, groups, 0, size))
        else:
            raise refuse("llm-decoder", f"its input {shown(value.name)} is not read", title)
        arrays[value.name] = array.astype(dtype)
        kind.shape.CopyFrom(TensorShapeProto())
        for extent in array.shape:
            kind.shape.dim.add(dim_value=extent)
    if "input_ids" not in arrays:
        raise refuse("llm-decoder", "it has no input input_ids", title)
    return arrays
