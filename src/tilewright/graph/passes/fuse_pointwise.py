"""fuse-pointwise: map operations join the operation whose result they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.numbers import RequantiseOp
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.graph.operations.quantisation import AffineOperation
from tilewright.graph.passes.constraints import (
    Candidate,
    candidate,
    has_meaning,
    other_parameters,
    serving,
)
from tilewright.graph.passes.editing import VIEWS, compiler, only_user, operations_of
from tilewright.graph.passes.enclosing import enclose, kernel_symbol, symbols_of
from tilewright.ir import (
    Context,
    ModuleOp,
    ModulePass,
    SSAValue,
    bf16,
    f16,
    f32,
)
from tilewright.ir.types import FixedType, element_name, shape_of, tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.machine.expression import parse_expression
from tilewright.machine.numbers import seen_by
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.operators import has

MAPS = (PointwiseOperation, RequantiseOp)
"""The operations that can be fused; networks that come with their numbers requantise."""


MUCH_SLOWER = 16
"""The factor over the fastest primitive's time that an anchor may take for a longer chain."""


@dataclass(frozen=True)
class FusePointwise(ModulePass):
    """Form kernels: an anchor, and the map operations that its primitive applies to results.

    Before::

        %1 = graph.conv %x, %w {node = "conv1"} : ...
        %2 = graph.add %1, %shortcut : ...
        %3 = graph.relu %2 : ...

    After::

        %3 = graph.kernel "k0_conv1" (%x, %w, %shortcut) : ... attributes {engine = "accelerator"} {
        ^0(%a, %b, %c):
          %1 = graph.conv %a, %b : ...
          %2 = graph.add %1, %c : ...
          %3 = graph.relu %2 : ...
          graph.yield %3
        }

    A chain grows while its value has one use, by a map operation, that the primitive accepts: any
    (``epilogue_any``), or one of the next of its epilogue's groups, each group once and in order.
    Such an operation joins even if alone it would be the host's. Other operands of the chain
    never depend on the anchor, since nothing else reads its value. Where a sum could join either
    of two products it joins the later one. Every operation left becomes a kernel of its own;
    views stay outside kernels. ``fuse=false`` makes only kernels of one operation; with
    ``sums=false`` maps of two computed values stay apart where the accelerator computes them alone,
    so that a search can choose which of two products takes a sum (network/fusion/).
    """

    name = "fuse-pointwise"
    fuse: bool = True
    sums: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        machine = compiler(ctx).machine
        taken: set[Operation] = set()
        chains: list[list[Operation]] = []
        steps = [step for step in operations_of(op) if step.operation not in VIEWS]
        # From the end, so that of two producers the later one is asked first; and products before
        # maps, so that a map joins a product rather than heading a chain of its own.
        for anchors in (
            [step for step in reversed(steps) if not isinstance(step, MAPS)],
            [step for step in steps if isinstance(step, MAPS)],
        ):
            for step in anchors:
                if step not in taken:
                    chain = self._chain(step, taken, machine)
                    taken.update(chain)
                    chains.append(chain)
        order = {step: index for index, step in enumerate(steps)}
        chains.sort(key=lambda chain: order[chain[-1]])
        used = symbols_of(op)
        for index, chain in enumerate(chains):
            enclose(chain, kernel_symbol(chain, index, used))

    def _chain(self, anchor: Operation, taken: set[Operation], machine: Machine) -> list[Operation]:
        if not self.fuse or anchor.engine is None or anchor.engine.data != "accelerator":
            return [anchor]
        primitives = _fast(candidate(anchor), machine)
        if not self.sums:
            taken = {*taken, *_sums(anchor)}
        chains = [_grow(anchor, primitive, taken, machine) for primitive in primitives]
        # The first primitive of the machine's order leads where several take the same chain.
        return max(chains, key=len, default=[anchor])


def _fast(asked: Candidate, machine: Machine) -> list[Primitive]:
    """The primitives that serve an anchor without those that lose more by it than a chain saves."""
    primitives = serving(asked, machine)
    cycles: list[Any] = [parse_expression(p.cycles).evaluate(asked.extents) for p in primitives]
    least = min(cycles, default=0.0)
    return [p for p, taken in zip(primitives, cycles, strict=True) if taken <= MUCH_SLOWER * least]


def _sums(anchor: Operation) -> set[Operation]:
    """The first map of two computed values after an anchor, if the accelerator computes it."""
    step = only_user(anchor.result)
    while isinstance(step, MAPS):
        computed = [v for v in step.inputs if not isinstance(v.owner, WeightOp)]
        if len(computed) > 1 and step.engine is not None and step.engine.data == "accelerator":
            return {step}
        step = only_user(step.result)
    return set()


def _grow(
    anchor: Operation, primitive: Primitive, taken: set[Operation], machine: Machine
) -> list[Operation]:
    chain = [anchor]
    while True:
        value = chain[-1].result
        step = only_user(value)
        if not isinstance(step, MAPS) or step in taken:
            return chain
        if not joins(step, value, primitive, machine):
            return chain
        beside = _widened_beside(step, value, taken, primitive)
        names = [op.operation for op in (*chain[1:], *beside, step)]
        if not primitive.accepts(names):
            return chain
        chain += [*beside, step]


def joins(step: Operation, value: SSAValue, primitive: Primitive, machine: Machine) -> bool:
    """Return True if a primitive could apply a map to its results; its order is ``accepts``' to
    judge."""
    if shape_of(step.result) != shape_of(value) or not _operands_fit(step, value, primitive):
        return False
    if other_parameters(step, step.operation, primitive) is not None:
        return False
    if not _elements_fit(step, value, primitive, machine):
        return False
    # After dequantised sums of integers come the machine's own floats.
    plain = ELEMENTS[element_name(tensor_type(value).element_type)].is_plain
    dequantised = plain and machine.number.is_short_float
    return has_meaning(candidate(step), machine if dequantised else seen_by(machine, primitive))


def _widened_beside(
    step: Operation, value: SSAValue, taken: set[Operation], primitive: Primitive
) -> list[Operation]:
    """Return the casts that widen a step's other operands from 16 bits for this step alone, which
    are fused with it."""
    widened: list[Operation] = []
    for operand in step.inputs:
        owner = operand.owner
        if operand is value or not isinstance(owner, Operation) or owner in taken:
            continue
        if (
            widens_or_rounds(owner)
            and only_user(operand) is step
            and tensor_type(owner.inputs[0]).element_type != f32
            and shape_of(operand) == shape_of(value)
            and owner.engine == step.engine
            and primitive.epilogue_any
            and primitive.takes("residual", element_name(tensor_type(owner.inputs[0]).element_type))
        ):
            widened.append(owner)
    return widened


def _operands_fit(step: Operation, value: SSAValue, primitive: Primitive) -> bool:
    """Return True if the chain's value is an operand that the epilogue can stream, and so is the
    other.

    A fixed epilogue adds a residual of the result's own shape; only generated loops broadcast.
    """
    if step.operation == "prelu" and step.inputs[0] is not value:
        return False
    others = [operand for operand in step.inputs if operand is not value]
    if others and "residual" not in primitive.operands:
        return False
    if primitive.epilogue_any:
        return True
    if step.operation in ("requantise_linear", "dequantise_linear"):
        return True  # its factors broadcast along with the result's channels
    if any(isinstance(operand.owner, WeightOp) for operand in others):
        return False
    # Which operand the chain's value is matters to a fixed unit: it subtracts from the value.
    if not has(step.operation, "commutative") and step.inputs[0] is not value:
        return False
    return all(shape_of(operand) == shape_of(value) for operand in others)


def _elements_fit(step: Operation, value: SSAValue, primitive: Primitive, machine: Machine) -> bool:
    """Return True if the primitive's vectors take the step's elements.

    They have one type on their way out, except between floats and quantised integers, between
    floats of 16 bits and of 32, and from 32-bit sums to 16 bits in networks of fixed point.
    """
    types = {tensor_type(v).element_type for v in (*step.inputs, step.result, value)}
    if all(isinstance(kind, FixedType) for kind in types):
        return True
    if len(types) == 1:
        element = machine.element_of(element_name(types.pop()), "residual")
        # A function of sums that are dequantised reads no other operand.
        role = "output" if machine.number.is_short_float and len(step.inputs) == 1 else "residual"
        return primitive.takes(role, element)
    if not isinstance(step, AffineOperation) and not widens_or_rounds(step):
        return False
    others = [operand for operand in step.inputs if operand is not value]
    names = [element_name(tensor_type(operand).element_type) for operand in others]
    result = element_name(tensor_type(step.result).element_type)
    return all(primitive.takes("residual", name) for name in names) and (
        primitive.takes("output", result)
    )


def widens_or_rounds(step: Operation) -> bool:
    """Return True if an operation goes between floats of 16 bits and of 32, or rounds to the
    former."""
    floats = (f16, bf16, f32)
    return step.operation == "cast" and all(
        tensor_type(value).element_type in floats for value in (*step.inputs, step.result)
    )
