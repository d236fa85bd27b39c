"""Binary points that a quantised model states, for machines of fixed point.

AMD's quantisers write ``quantise_linear -> dequantise_linear`` around every tensor, with powers of
two as scales and zero points of 0. Such a pair says where a tensor has its binary point, and no
more: it is taken out, and the point is the tensor's own in place of one from calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import frexp

import numpy as np

from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import constant, erase
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import FixedType, element_name, tensor_type


@dataclass
class StatedPoints:
    """The points of a model's tensors, by the values' names, and what was left of its pairs."""

    fractions: dict[str, int] = field(default_factory=dict[str, int])
    nodes: dict[str, int] = field(default_factory=dict[str, int])
    """The same by the nodes that compute them."""
    left: list[str] = field(default_factory=list[str])
    """Why a pair stays what it is, and runs on the host: one sentence each."""

    def ranges(self, bits: int) -> dict[str, tuple[float, float]]:
        """Ranges of which the finest points are those that are stated."""
        most = 2 ** (bits - 1) - 1
        return {
            name: (-most * 2.0**-fraction, most * 2.0**-fraction)
            for name, fraction in self.fractions.items()
        }


def read_points(network: NetworkOp, ctx: CompilerContext) -> StatedPoints:
    """Take pairs with scales of powers of two out of a network, and tell the points they state."""
    stated, values = StatedPoints(), dict[SSAValue, int]()
    bits = ctx.machine.fixed_bits
    for op in list(network.block.ops):
        if not isinstance(op, Operation) or op.operation != "quantise_linear":
            continue
        readers = [use.operation for use in op.result.uses]
        pairs = [r for r in readers if isinstance(r, Operation) and r.name == _DEQUANTISE]
        source = op.inputs[0]
        if isinstance(source.owner, WeightOp) or not pairs:
            continue
        reason = _objection(op, pairs, bits, ctx)
        if reason:
            stated.left.append(f"{op.node_name}: {reason}")
            continue
        values[source] = _fraction(op, ctx)
        for reader in pairs:
            reader.result.replace_all_uses_with(source)
            erase(reader)
        if op.result.first_use is None:
            erase(op)
    names = value_names(network)
    stated.fractions |= {names[value]: fraction for value, fraction in values.items()}
    stated.nodes |= {
        value.owner.node_name: fraction
        for value, fraction in values.items()
        if isinstance(value.owner, Operation)
    }
    return stated


_DEQUANTISE = "graph.dequantise_linear"


def _objection(
    op: Operation, pairs: list[Operation], bits: int, ctx: CompilerContext
) -> str | None:
    """Why a pair states no binary point of the machine; None if it does."""
    element = element_name(tensor_type(op.result).element_type)
    if element != f"int{bits}":
        return f"its integers are {element}, and the machine's int{bits}: quantise to int{bits}"
    scale, zero = (constant(value, ctx) for value in op.inputs[1:])
    if scale is None or zero is None:
        return "its scale or zero point is computed: state constants"
    if scale.size != 1:
        return "it has a scale for each channel, and a tensor has one binary point: use one scale"
    if np.any(zero):
        return f"its zero point is {int(np.ravel(zero)[0])}: quantise symmetrically, around 0"
    if frexp(float(scale.ravel()[0]))[0] != 0.5:
        return f"its scale {float(scale.ravel()[0]):g} is no power of two: round it to one"
    for reader in pairs:
        others = [constant(value, ctx) for value in reader.inputs[1:]]
        if any(
            other is None or not np.array_equal(np.ravel(other), np.ravel(own))
            for other, own in zip(others, (scale, zero), strict=True)
        ):
            return "it is read with another scale than it is written with"
    return None


def _fraction(op: Operation, ctx: CompilerContext) -> int:
    scale = constant(op.inputs[1], ctx)
    assert scale is not None
    return 1 - frexp(float(scale.ravel()[0]))[1]


def other_points(network: NetworkOp, stated: Mapping[str, int]) -> list[str]:
    """Results whose binary points are not those that the model states, each with what would help.

    ``network`` is one of fixed point, ``stated`` has the points of nodes' results.
    """
    notes: list[str] = []
    for op in network.block.ops:
        if not isinstance(op, KernelOp) or op.on_host:
            continue
        name, element = op.operations[-1].node_name, tensor_type(op.result).element_type
        wanted = stated.get(name)
        if wanted is None or not isinstance(element, FixedType):
            continue
        point = element.fraction.data
        if point != wanted:
            notes.append(
                f"{name} states binary point {wanted} and is computed with {point}, which the "
                "shifts of the machine, or tensors that share it (concat, pools), ask for: "
                f"quantise it at {point}"
            )
    return notes
