"""The rewriting half of fix-numbers: binary points are chosen, operations take them on."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, log2
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.pooling import AveragePoolOp
from tilewright.graph.passes.editing import constant, erase, insert, make, sweep
from tilewright.graph.passes.enclosing import enclose, symbols_of
from tilewright.graph.passes.insertion import insert_kernel
from tilewright.graph.passes.points import ALIGNING, KEEPING, Points, largest_product_sum
from tilewright.graph.passes.stated_points import Pairs
from tilewright.graph.values import value_names
from tilewright.ir import (
    ArrayAttr,
    Attribute,
    PythonValue,
    SSAValue,
    StringAttr,
    to_attribute,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import (
    Array,
    FixedType,
    element_dtype,
    fraction_of,
    shape_of,
    tensor,
    tensor_type,
)
from tilewright.numerics import fixed
from tilewright.numerics.operators import has

ALWAYS = "always"
"""No input whatever makes the accumulator overflow."""

CALIBRATED = "calibrated"
"""The accumulator has room for twice the calibrated range, at least."""


_CHUNK = 1 << 16
"""Elements quantised at a time: what they need in between stays in the cache."""


def quantise_weight(array: Array, element: FixedType) -> Array:
    """A constant in fixed point."""
    dtype, fraction = element_dtype(element), element.fraction.data
    flat, result = array.reshape(-1), np.empty(array.size, dtype)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        result[part] = fixed.quantise(flat[part], fraction, dtype)
    return result.reshape(array.shape)


def quantise_bias(array: Array, point: int, bits: int) -> NDArray[np.int32]:
    """A bias at its sum's binary point, of ``bits`` bits at the finest point at which it fits.

    That is at most the sum's own.
    """
    largest = float(np.abs(array, dtype=np.float64).max(initial=0.0))
    if bits == 32 or not largest:
        return fixed.quantise32(array, point)
    limit = 2 ** (bits - 1) - 1
    fitting = min(floor(log2(limit / largest)), point)
    scaled = np.rint(array.astype(np.float64) * 2.0**fitting)
    return (np.clip(scaled, -limit - 1, limit).astype(np.int64) << (point - fitting)).astype(
        np.int32
    )


@dataclass
class NumbersRewriter:
    """Builds the fixed-point network beside the float32 one, then drops the latter."""

    ctx: CompilerContext
    network: NetworkOp
    points: Points
    fixed_values: set[SSAValue]
    pairs: Pairs
    fixed: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Value of the float network -> the same in fixed point."""
    floats: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Fixed-point value -> the same dequantised."""
    report: list[tuple[SSAValue, float, float, str]] = field(
        default_factory=list[tuple[SSAValue, float, float, str]]
    )
    symbols: set[str] = field(default_factory=set[str])

    def run(self) -> None:
        """Rewrite operation by operation, then drop the old ones."""
        self.symbols = symbols_of(self.network)
        old: list[AnyOperation] = []
        for op in list(self.network.block.ops):
            if isinstance(op, KernelOp) and not op.on_host:
                self.fixed[op.result] = self.kernel(op).result
                old.append(op)
            elif isinstance(op, Operation) and op.result in self.fixed_values:
                self.fixed[op.result] = self.view(op)
                old.append(op)
            elif isinstance(op, OutputOp | KernelOp | Operation):
                for index, value in enumerate(list(op.operands)):
                    if value in self.fixed_values:
                        op.operands[index] = self.float_of(value, op)
        for op in reversed(old):
            erase(op)
        sweep(self.network)
        names = value_names(self.network)
        rows: list[PythonValue] = [
            (names[value], fraction_of(value), low, high, guarantee)
            for value, low, high, guarantee in self.report
        ]
        self.network.numbers = cast("ArrayAttr[Attribute]", to_attribute(rows))

    def fixed_of(self, value: SSAValue, before: AnyOperation) -> SSAValue:
        """A computed value in fixed point: quantised here if it is float32."""
        if value not in self.fixed:
            point = self.points.class_of(value)
            element = FixedType.of(self.points.bits, point.fraction)
            array = constant(value, self.ctx)
            if array is not None:
                fixed = self.weight(
                    quantise_weight(array, element),
                    element,
                    before,
                    self.points.names[value],
                )
            else:
                source = self.pairs.rounded(value, point.fraction)
                fixed = self.conversion("quantise", source, element, before)
            self.note(fixed, value)
            self.fixed[value] = fixed
        return self.fixed[value]

    def float_of(self, value: SSAValue, before: AnyOperation) -> SSAValue:
        """A fixed-point value dequantised, once for all users."""
        source = self.fixed[value]
        if source not in self.floats:
            element = tensor_type(value).element_type
            self.floats[source] = self.conversion("dequantise", source, element, before)
        return self.floats[source]

    def conversion(
        self, name: str, value: SSAValue, element: Attribute, before: AnyOperation
    ) -> SSAValue:
        """The result of a kernel that quantises or dequantises a value."""
        kind = tensor(shape_of(value), element)
        op = make(name, [value], before=before, result_type=kind)
        machine, reason = self.ctx.machine, None
        if not machine.primitives_for(name):
            reason = f"{machine.name} computes in {self.points.bits}-bit fixed point only"
        hint = f"{name}_{self.points.names.get(value, '')}"
        return insert_kernel(op, reason, self.ctx, self.symbols, hint).result

    def weight(self, array: Array, element: FixedType, before: AnyOperation, hint: str) -> SSAValue:
        """A weight of fixed-point integers."""
        symbol = self.ctx.weights.add(array, hint)
        weight = WeightOp.of(symbol, tensor(array.shape, element))
        insert(weight, before)
        return weight.result

    def note(self, fixed: SSAValue, value: SSAValue, guarantee: str = "") -> None:
        """Report on a value made from ``value`` of the float32 network."""
        low, high = self.points.range_of(value)
        self.report.append((fixed, low, high, guarantee))

    def view(self, op: Operation) -> SSAValue:
        """A view of fixed-point values."""
        operands = [self.fixed_of(value, op) for value in op.inputs]
        view = make(op.operation, operands, op.values, before=op, like=op)
        self.note(view.result, op.result)
        return view.result

    def kernel(self, kernel: KernelOp) -> KernelOp:
        """A kernel in fixed point, before the one in float32."""
        walk = self.points.walk(kernel)
        outer = kernel.outside
        known: dict[SSAValue, SSAValue] = {}
        chain: list[Operation] = []
        notes: list[tuple[Operation, SSAValue, str]] = []

        def narrow(value: SSAValue, fraction: int, like: Operation) -> SSAValue:
            kind = tensor(shape_of(value), FixedType.of(self.points.bits, fraction))
            op = make("requantise", [value], before=kernel, like=like, result_type=kind)
            chain.append(op)
            return op.result

        for step in walk.steps:
            op = step.op
            if step.requantise is not None:
                last = chain[-1]
                narrowed = narrow(last.result, step.requantise[0].fraction, last)
                known[next(v for v in op.inputs if v not in outer)] = narrowed
            operands: list[SSAValue] = []
            for index, value in enumerate(op.inputs):
                if value not in outer:
                    operands.append(known[value])
                elif index == 2 and has(op.operation, "product"):
                    operands.append(self.bias(value, outer[value], step.point, kernel))
                else:
                    operands.append(self.operand(value, outer[value], kernel))
            kind = None
            if not step.wide and op.operation not in KEEPING:
                kind = tensor(shape_of(op.result), FixedType.of(self.points.bits, step.point))
            values = self.values(op)
            if step.wide and (slope := self.points.slope_of(op)) is not None:
                values["factor"] = slope
            fixed_op = make(
                op.operation, operands, values, before=kernel, like=op, result_type=kind
            )
            chain.append(fixed_op)
            known[op.result] = fixed_op.result
            if step.wide:
                guarantee = self.guarantee(fixed_op) if op is walk.steps[0].op else CALIBRATED
                notes.append((fixed_op, op.result, guarantee))
        if walk.requantise is not None:
            narrow(chain[-1].result, walk.requantise[0].fraction, chain[-1])
        chain[0].engine = StringAttr("accelerator")
        fixed_kernel = enclose(chain, kernel.symbol.data)
        for fixed_op, value, guarantee in notes:
            self.note(fixed_op.result, value, guarantee)
        self.note(fixed_kernel.result, kernel.result)
        return fixed_kernel

    def values(self, op: Operation) -> dict[str, PythonValue]:
        """An operation's attributes, with the machine's rules where it does not compute exactly."""
        values, rounding = dict(op.values), self.points.rounding
        if op.operation in ALIGNING and rounding.guard_bits is not None:
            values["guard"] = rounding.guard_bits
        if isinstance(op, AveragePoolOp):
            factor = rounding.average(*op.integers("kernel"))
            if factor is not None and op.counts_all:
                values["factor"] = factor
        return values

    def operand(self, argument: SSAValue, outer: SSAValue, before: AnyOperation) -> SSAValue:
        """Return a kernel's operand in the machine's numbers."""
        array = constant(outer, self.ctx)
        if array is None:
            return self.fixed_of(outer, before)
        point = self.points.argument_class(argument, outer)
        element, hint = FixedType.of(self.points.bits, point.fraction), self.points.names[outer]
        weight = self.weight(quantise_weight(array, element), element, before, hint)
        weight.name_hint = outer.name_hint
        return weight

    def bias(
        self, argument: SSAValue, outer: SSAValue, point: int, before: AnyOperation
    ) -> SSAValue:
        """A kernel's 32-bit bias, at its accumulator's binary point; masks are cut."""
        array = constant(outer, self.ctx)
        assert array is not None, "partition leaves computed biases to the host"
        low, high = self.points.bounds_of(argument)
        if array.size and (array.min() < low or array.max() > high):
            array = np.clip(array, low, high)
        element, hint = FixedType.of(32, point), self.points.names[outer]
        bits = self.points.rounding.bias_bits
        bias = self.weight(quantise_bias(array, point, bits), element, before, hint)
        bias.name_hint = outer.name_hint
        return bias

    def guarantee(self, op: Operation) -> str:
        """Tell by what reason a product's accumulator cannot overflow: for all inputs, or for the
        samples."""
        if not has(op.operation, "product"):
            return CALIBRATED
        weight = constant(op.inputs[1], self.ctx)
        bias = constant(op.inputs[2], self.ctx) if len(op.inputs) == 3 else np.zeros(1, np.int32)
        if weight is None or bias is None:
            return CALIBRATED
        if op.operation == "matmul":
            weight = weight if op.get("transpose_b", False) else np.swapaxes(weight, -1, -2)
            weight = weight.reshape(-1, weight.shape[-1])
        offset = int(np.abs(bias.astype(np.int64)).max(initial=0))
        return (
            ALWAYS if largest_product_sum(weight, self.points.bits) + offset < 2**31 else CALIBRATED
        )
