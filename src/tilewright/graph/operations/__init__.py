"""The operations of the graph dialect, one file a family.

Each states its definition, shape rule, meaning and domain side by side. To add one: write the
class in its family's file, with ``definition`` (base.py), and import it here.
"""

from __future__ import annotations

from tilewright.graph.dialect import (
    GraphOperation,
    KernelOp,
    NetworkOp,
    OutputOp,
    ScratchOp,
    WeightOp,
    YieldOp,
)
from tilewright.graph.operations.attention import AttentionOp
from tilewright.graph.operations.base import OPERATIONS, Operation
from tilewright.graph.operations.binary import (
    AddOp,
    BinaryOperation,
    DivOp,
    MaxOp,
    MinOp,
    ModOp,
    MulOp,
    PowOp,
    SubOp,
)
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.explicit import ExplicitConvOp
from tilewright.graph.operations.functions import (
    FUNCTION_OPERATIONS,
    SignOp,
)
from tilewright.graph.operations.gradients import MaximumGradientOp
from tilewright.graph.operations.im2col import Im2colOp
from tilewright.graph.operations.indexing import (
    ArgSortOp,
    GatherOp,
    RunningProductOp,
    RunningSumOp,
    ScatterOp,
)
from tilewright.graph.operations.layer_norm import LayerNormOp
from tilewright.graph.operations.logic import (
    BitAndOp,
    BitCastOp,
    BitNotOp,
    BitOrOp,
    BitShiftOp,
    BitXorOp,
    CastOp,
    EqualOp,
    LessEqualOp,
    LessOp,
    SelectOp,
)
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.normalisation import (
    BatchNormOp,
    LrnGradientOp,
    LrnOp,
    SoftmaxOp,
)
from tilewright.graph.operations.numbers import (
    ConvertLayoutOp,
    DequantiseOp,
    QuantiseOp,
    RequantiseOp,
)
from tilewright.graph.operations.pieces import PieceConvOp, PieceMatMulOp
from tilewright.graph.operations.pointwise import (
    AbsOp,
    ClipOp,
    LeakyReluOp,
    NegOp,
    PointwiseOperation,
    PReluOp,
    ReluOp,
    TableOperation,
)
from tilewright.graph.operations.pooling import AveragePoolOp, MaxPoolOp
from tilewright.graph.operations.quantisation import (
    AddLinearOp,
    AffineOperation,
    DequantiseLinearOp,
    LookUpOp,
    MulLinearOp,
    QuantiseLinearOp,
    RequantiseLinearOp,
)
from tilewright.graph.operations.reductions import (
    ArgMaxOp,
    ArgMinOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProductOp,
    ReduceSumOp,
)
from tilewright.graph.operations.separable import SeparableConvOp
from tilewright.graph.operations.shuffle import ChannelShuffleOp
from tilewright.graph.operations.sparse import SparseProductOp
from tilewright.graph.operations.views import (
    ConcatOp,
    InterleaveOp,
    JoinOperation,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from tilewright.graph.operations.winograd import WinogradConvOp
from tilewright.graph.operations.winograd_stages import WinogradInputOp, WinogradOutputOp
from tilewright.ir import Builtin, Context, Dialect, ModuleOp, Parser
from tilewright.ir.types import TYPES

BY_NAME: dict[str, type[Operation]] = {op.name.removeprefix("graph."): op for op in OPERATIONS}
"""The operations by their names without the dialect."""

GRAPH = Dialect(
    "graph", [*OPERATIONS, WeightOp, ScratchOp, OutputOp, YieldOp, KernelOp, NetworkOp], []
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
    "FUNCTION_OPERATIONS",
    "GRAPH",
    "OPERATIONS",
    "AbsOp",
    "AddLinearOp",
    "AddOp",
    "AffineOperation",
    "ArgMaxOp",
    "ArgMinOp",
    "ArgSortOp",
    "AttentionOp",
    "AveragePoolOp",
    "BatchNormOp",
    "BinaryOperation",
    "BitAndOp",
    "BitCastOp",
    "BitNotOp",
    "BitOrOp",
    "BitShiftOp",
    "BitXorOp",
    "CastOp",
    "ChannelShuffleOp",
    "ClipOp",
    "ConcatOp",
    "ConvOp",
    "ConvertLayoutOp",
    "DequantiseLinearOp",
    "DequantiseOp",
    "DivOp",
    "EqualOp",
    "ExplicitConvOp",
    "GatherOp",
    "GraphOperation",
    "Im2colOp",
    "InterleaveOp",
    "JoinOperation",
    "LayerNormOp",
    "LeakyReluOp",
    "LessEqualOp",
    "LessOp",
    "LookUpOp",
    "LrnGradientOp",
    "LrnOp",
    "MatMulOp",
    "MaxOp",
    "MaxPoolOp",
    "MaximumGradientOp",
    "MinOp",
    "ModOp",
    "MulLinearOp",
    "MulOp",
    "NegOp",
    "Operation",
    "PReluOp",
    "PadOp",
    "PieceConvOp",
    "PieceMatMulOp",
    "PointwiseOperation",
    "PowOp",
    "QuantiseLinearOp",
    "QuantiseOp",
    "ReduceMaxOp",
    "ReduceMeanOp",
    "ReduceMinOp",
    "ReduceProductOp",
    "ReduceSumOp",
    "ReluOp",
    "RequantiseLinearOp",
    "RequantiseOp",
    "ReshapeOp",
    "RunningProductOp",
    "RunningSumOp",
    "ScatterOp",
    "SelectOp",
    "SeparableConvOp",
    "SignOp",
    "SliceOp",
    "SoftmaxOp",
    "SparseProductOp",
    "SubOp",
    "TableOperation",
    "TransposeOp",
    "WinogradConvOp",
    "WinogradInputOp",
    "WinogradOutputOp",
    "context",
    "load_dialects",
    "parse",
]
