"""The operations of the graph dialect, one file a family.

Each states its definition, shape rule, meaning and domain side by side. To add one: write the
class in its family's file, with ``definition`` (base.py); a new file is named in ``FAMILIES``.
"""

from __future__ import annotations

from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, ScratchOp, WeightOp, YieldOp
from tilewright.graph.operation import Operation
from tilewright.graph.operations import (
    attention,
    binary,
    blocked,
    boxes,
    convolution,
    decoding,
    indexing,
    logic,
    matrix,
    normalisation,
    numbers,
    pieces,
    pointwise,
    pooling,
    quantisation,
    reductions,
    separable,
    sparse,
    views,
    windows,
    winograd,
)
from tilewright.graph.operations.base import OPERATIONS
from tilewright.graph.operations.loops import LoopOp
from tilewright.graph.operations.written import WRITTEN
from tilewright.ir import Builtin, Context, Dialect, ModuleOp, Parser
from tilewright.ir.types import TYPES

FAMILIES = (
    *(attention, binary, blocked, boxes, convolution, decoding, indexing, logic, matrix),
    *(normalisation, numbers),
    *(pieces, pointwise, pooling, quantisation, reductions, separable, sparse, views),
    *(windows, winograd),
)
"""The files whose operations are in ``OPERATIONS`` once they are imported."""

BY_NAME: dict[str, type[Operation]] = {op.name.removeprefix("graph."): op for op in OPERATIONS}
"""The operations by their names without the dialect."""

GRAPH = Dialect(
    "graph",
    [*OPERATIONS, *WRITTEN, LoopOp, WeightOp, ScratchOp, OutputOp, YieldOp, KernelOp, NetworkOp],
    [],
)
"""The graph dialect, for a context."""


def load_dialects(context: Context) -> Context:
    """Load what the graph's text needs into a context; returns it."""
    for dialect in (Builtin, TYPES, GRAPH):
        context.load_dialect(dialect)
    return context


def context() -> Context:
    """A context in which the graph's text parses."""
    return load_dialects(Context())


def parse(text: str) -> ModuleOp:
    """Read a module of the graph dialect and verify it; raises ParseError or VerifyException."""
    module = Parser(context(), text).parse_module()
    module.verify()
    return module


__all__ = [
    "BY_NAME",
    "GRAPH",
    "OPERATIONS",
    "LoopOp",
    "Operation",
    "context",
    "load_dialects",
    "parse",
]
