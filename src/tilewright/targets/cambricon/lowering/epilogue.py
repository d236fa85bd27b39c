"""The steps after an accumulation: bias, residual, activation, back to 16 bits, a table.

The graph's order is bias, residual, activation, requantise; ReLU and requantise commute, so a
result takes as few passes of the vector unit as its sums have operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tilewright.codegen.program.elements import elements, fraction, is_wide
from tilewright.errors import refuse
from tilewright.numerics.pointwise import bound
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.tables import KernelTables, table_of
from tilewright.targets.cambricon.lowering.temporaries import Temporaries, clear, fill
from tilewright.tile.dialect import BufferOp, StageOp


@dataclass(frozen=True)
class Residual:
    """The second operand of an addition, and the binary points' distance to the sum's."""

    buffer: BufferOp
    wide: bool
    left: int
    left_sum: int


@dataclass(frozen=True)
class Epilogue:
    """The stages after an anchor, as the vector unit computes them."""

    residual: Residual | None
    relu: bool
    shift: int | None
    """Bits by which requantise shifts right; None without that stage."""
    table: StageOp | None
    wide_result: bool
    limits: tuple[tuple[str, int], ...] = ()
    """Instructions that keep results within limits other than 0, and those limits: they are
    compared with the results' 16 bits, as rounding keeps the order of numbers."""
    places: tuple[int, ...] = ()
    """Addresses of vectors of them."""
    needs_zeros: bool = False
    """True if ``placed`` makes a vector of zeros, which ReLU compares with."""
    zeros: int = 0
    """Address of the vector of zeros."""
    number: int = 0
    """The number of the table."""

    @property
    def bytes(self) -> int:
        """Bytes of temporaries for each element of a vector of results."""
        return 2 * len(self.limits) + 2 * self.needs_zeros

    def placed(self, t: Temporaries, size: int, tables: KernelTables) -> Epilogue:
        """With room for zeros and limits, for vectors of ``size`` elements, and with its table."""
        zeros = t.take(2 * size) if self.needs_zeros else self.zeros
        places = tuple(t.take(2 * size) for _ in self.limits)
        number = 0 if self.table is None else table_of(self.table, tables)
        return replace(self, zeros=zeros, places=places, number=number)

    def prologue(self, e: Emitter, size: int) -> None:
        """Fill the vectors of zeros and limits."""
        if self.needs_zeros:
            clear(e, self.zeros, size)
        for place, (_, limit) in zip(self.places, self.limits, strict=True):
            fill(e, place, size, limit)

    def emit(
        self,
        e: Emitter,
        total: Value,
        result: Value,
        count: Value,
        *,
        bias: Value | None = None,
        residual: Value | None = None,
        wide: bool = True,
    ) -> None:
        """Results of ``count`` sums at ``total`` (of 32 bits if ``wide``); all values addresses."""
        for step in self.steps(e, total, result, count, bias, residual, wide=wide):
            step()

    def steps(
        self,
        e: Emitter,
        total: Value,
        result: Value,
        count: Value,
        bias_at: Value | None,
        residual_at: Value | None,
        *,
        wide: bool = True,
    ) -> list[Callable[[], None]]:
        """The instructions that make results of sums, to be emitted one after the other."""
        steps: list[Callable[[], None]] = []
        first = ".wide0" if wide else ""
        bias = None if bias_at is None else e.reg(bias_at)
        residual = None if residual_at is None else e.reg(residual_at)
        zeros = e.reg(self.zeros) if self.relu else None
        at, out, n = e.reg(total), e.reg(result), e.reg(count)

        def add(text: str, *operands: Register) -> None:
            steps.append(lambda: e.emit(text, *operands))

        end = ".wide" if self.wide_result else ""
        shift = "" if not self.shift else f".shift={self.shift}"
        done = False
        both = self.residual
        if bias is not None and both is not None and wide and not both.left_sum and self.relu:
            # The sums' own places take what is added to them: both at once.
            assert residual is not None
            text = f"VAV.wide.acc.wide0{'.wide1' if both.wide else ''}"
            add(f"{text}.left1={both.left}" if both.left else text, at, n, bias, residual)
            bias, both = None, None
        if bias is not None:
            last = both is None
            text = f"VAV{end if last else '.wide'}{first}.wide1{shift if last else ''}"
            target = out if last else at
            add(text, target, n, at, bias)
            done = last
        if both is not None:
            assert residual is not None
            text = f"VAV{end}{first}{'.wide1' if both.wide else ''}{shift}"
            text += f".left0={both.left_sum}" if both.left_sum else ""
            text += f".left1={both.left}" if both.left else ""
            add(text, out, n, at, residual)
            done = True
        if self.relu:
            assert zeros is not None
            if done:
                text = f"VGTM{end}{'.wide0' if self.wide_result else ''}"
                add(text, out, n, out, zeros)
            else:
                add(f"VGTM{end}{first}{shift}", out, n, at, zeros)
        elif not done:
            add(f"VMOVE{end}{first}{shift}", out, n, at)
        for place, (text, _) in zip(self.places, self.limits, strict=True):
            add(text, out, n, out, e.reg(place))
        if self.table is not None:
            add(f"VEXP.table={self.number}", out, n, out)
        return steps


def limits_of(stage: StageOp) -> list[tuple[str, int]]:
    """The instructions of a clip, and what they compare with, at the operand's binary point."""
    (operand, *_), _ = elements(stage)
    dtype = np.dtype(np.int32 if is_wide(operand) else np.int16)
    return [
        (text, bound(float(stage.parameters[key]), fraction(operand), dtype))
        for key, text in (("minimum", "VGTM"), ("maximum", "VGTM.min"))
        if key in stage.parameters
    ]


def epilogue_of(stages: Sequence[StageOp], where: str) -> Epilogue:
    """The stages after the first; refuses (``lower-epilogue``) what is not in their order."""
    residual: Residual | None = None
    relu, shift, table = False, None, None
    bounds: list[tuple[str, int]] = []
    _, result = elements(stages[-1])
    for before, stage in pairwise(stages):
        kinds, result_kind = elements(stage)
        name = stage.operation.data
        fresh = shift is None and table is None
        clipped = relu or len(bounds) > 0
        if name == "add" and residual is None and not clipped and fresh:
            other = next(i for i, value in enumerate(stage.inputs) if value is not before.result)
            owner = stage.inputs[other].owner
            if not isinstance(owner, BufferOp):
                raise refuse("lower-epilogue", "adds a value to itself", where)
            points = [fraction(kind) for kind in kinds]
            residual = Residual(
                owner,
                is_wide(kinds[other]),
                max(points) - points[other],
                max(points) - points[1 - other],
            )
        elif name == "relu" and not clipped and table is None:
            relu = True
        elif name == "clip" and not clipped and table is None:
            bounds = limits_of(stage)
            relu = ("VGTM", 0) in bounds
        elif name == "requantise" and fresh:
            shift = fraction(kinds[0]) - fraction(result_kind)
        elif name not in ("add", "relu", "requantise") and table is None:
            table = stage
        else:
            chain = ", ".join(link.operation.data for link in stages)
            raise refuse("lower-epilogue", f"the chain {chain} is not computed at once", where)
    limits = tuple((text, limit) for text, limit in bounds if (text, limit) != ("VGTM", 0))
    if limits and is_wide(result):
        raise refuse("lower-epilogue", "limits of a result of 32 bits", where)
    limits = tuple((text, _rounded(limit, shift or 0)) for text, limit in limits)
    return Epilogue(residual, relu, shift, table, is_wide(result), limits, needs_zeros=relu)


def _rounded(number: int, shift: int) -> int:
    """A sum as a result: half up, saturated."""
    moved = (number + (1 << shift >> 1)) >> shift if shift >= 0 else number << -shift
    return min(max(moved, -32768), 32767)
