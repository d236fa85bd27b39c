"""What follows an accumulation: bias, residual, activation, back to 16 bits, a table.

The graph's order is bias, residual, activation, requantise; ReLU and requantise commute, so a
result takes as few passes of the vector unit as its sums have operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.generic.lowering.steps import elements, fraction, is_wide
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
    """The stages behind an anchor, as the vector unit computes them."""

    residual: Residual | None
    relu: bool
    shift: int | None
    """Of requantise; None without."""
    table: StageOp | None
    wide_result: bool

    @property
    def reads_zeros(self) -> bool:
        """Whether a vector of zeros is compared with."""
        return self.relu

    def emit(
        self,
        e: Emitter,
        total: Value,
        result: Value,
        count: Value,
        *,
        bias: Value | None = None,
        residual: Value | None = None,
        zeros: Value = 0,
        table: int = 0,
        wide: bool = True,
    ) -> None:
        """Results of ``count`` sums at ``total`` (of 32 bits if ``wide``); all values addresses."""
        parts = {"bias": bias, "residual": residual, "zeros": zeros}
        held = {name: None if at is None else e.held(at) for name, at in parts.items()}
        for step in self.steps(
            e, e.held(total), e.held(result), e.held(count), held, table=table, wide=wide
        ):
            step()

    def steps(
        self,
        e: Emitter,
        at: Register,
        out: Register,
        n: Register,
        others: Mapping[str, Register | None],
        *,
        table: int = 0,
        wide: bool = True,
    ) -> list[Callable[[], None]]:
        """The instructions that make results of sums, to be emitted one after the other."""
        found: list[Callable[[], None]] = []
        first = ".wide0" if wide else ""
        bias, residual, zeros = (others[name] for name in ("bias", "residual", "zeros"))

        def add(text: str, *operands: Register) -> None:
            found.append(lambda: e.emit(text, *operands))

        end = ".wide" if self.wide_result else ""
        shift = "" if not self.shift else f".shift={self.shift}"
        done = False
        if bias is not None:
            last = self.residual is None
            text = f"VAV{end if last else '.wide'}{first}.wide1{shift if last else ''}"
            target = out if last else at
            add(text, target, n, at, bias)
            done = last
        if self.residual is not None:
            assert residual is not None
            one = self.residual
            text = f"VAV{end}{first}{'.wide1' if one.wide else ''}{shift}"
            text += f".left0={one.left_sum}" if one.left_sum else ""
            text += f".left1={one.left}" if one.left else ""
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
        if self.table is not None:
            add(f"VEXP.table={table}", out, n, out)
        return found


def epilogue_of(stages: Sequence[StageOp], where: str) -> Epilogue:
    """The stages behind the first; refuses (``lower-epilogue``) what is not in their order."""
    residual: Residual | None = None
    relu, shift, table = False, None, None
    _, result = elements(stages[-1])
    for before, stage in pairwise(stages):
        kinds, made = elements(stage)
        name = stage.operation.data
        fresh = shift is None and table is None
        if name == "add" and residual is None and not relu and fresh:
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
        elif name == "relu" and not relu and table is None:
            relu = True
        elif name == "requantise" and fresh:
            shift = fraction(kinds[0]) - fraction(made)
        elif name not in ("add", "relu", "requantise") and table is None:
            table = stage
        else:
            chain = ", ".join(one.operation.data for one in stages)
            raise refuse("lower-epilogue", f"the chain {chain} is not computed at once", where)
    return Epilogue(residual, relu, shift, table, is_wide(result))
