"""The part of the suite that every network of images or of text is made of.

A node test counts if its model has one node of ONNX's own domain, all shapes are stated, floats are
float32 and there are some, and everything else is an index, a size or a mask (int32, int64, bool).
Left out is only what no such network computes: ELSEWHERE. That is wider than what convolutional
networks and Transformers alone need.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import TensorProto, ValueInfoProto
from onnx.backend.test.case.test_case import TestCase

ELSEWHERE = frozenset(
    ("Bernoulli", "DFT", "If", "Loop", "OptionalGetElement", "STFT", "Scan", "TfIdfVectorizer")
)
"""Random numbers, spectra of signals, counts of words, control flow, values that may be absent."""

ASIDE = frozenset((TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL))
"""Element types beside float32."""


def is_single_operator(case: TestCase) -> bool:
    """Whether a node test belongs to this part."""
    graph = case.model.graph
    if len(graph.node) != 1:
        return False
    node, values = graph.node[0], [*graph.input, *graph.output]
    kinds = {value.type.tensor_type.elem_type for value in values}
    return (
        node.domain == ""
        and node.op_type not in ELSEWHERE
        and not case.name.startswith("test_training_dropout")  # Drops at random.
        and TensorProto.FLOAT in kinds
        and kinds <= {TensorProto.FLOAT, *ASIDE}
        and _are_static(values)
    )


def _are_static(values: Iterable[ValueInfoProto]) -> bool:
    return all(
        value.type.tensor_type.HasField("shape")
        and all(dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim)
        for value in values
    )
