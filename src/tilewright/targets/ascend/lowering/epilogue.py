"""What follows a product on its way to main memory: bias, a second summand, relu.

Alone, relu comes with the conversion to halves on the way from L0C to UB. Otherwise the vector unit
computes on the converted tile in UB: blocks of 16 columns one behind the other, each with all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.lowering.nest import Linear, Span
from tilewright.targets.ascend.lowering.walk import Homes
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.program import Loop, Place, Statement, Value
from tilewright.targets.ascend.vectors import LANES, add_rows, flat
from tilewright.tile.dialect import ComputeOp


@dataclass
class Epilogue:
    """The stages of a compute behind its first."""

    bias: SSAValue | None = None
    summand: SSAValue | None = None
    relu: bool = False

    @classmethod
    def of(cls, compute: ComputeOp) -> Epilogue:
        """Read off the stages; refuses (``lower-operation``) others."""
        anchor, *rest = compute.stages
        found = cls(anchor.inputs[2] if len(anchor.inputs) > 2 else None)
        value = anchor.result
        for stage in rest:
            operation = stage.operation.data
            if operation == "add" and not found.relu and found.summand is None:
                others = [one for one in stage.inputs if one is not value]
                windows = {str(window) for window in stage.windows.data}
                if len(others) != 1 or len(windows) != 1:
                    raise refuse(
                        "lower-operation", "a product is added to what is not of its shape"
                    )
                found.summand = others[0]
            elif operation == "relu":
                found.relu = True
            elif operation != "cast":
                raise refuse("lower-operation", f"no kernel has {operation} behind a product")
            value = stage.result
        return found

    @property
    def mode(self) -> str:
        """Of the conversion on the way to UB."""
        early = self.relu and self.bias is None and self.summand is None
        return "CRMODE_F32toF16_RELU" if early else "CRMODE_F32toF16_NONE"

    def statements(
        self,
        tile: Place,
        homes: Homes,
        columns: Span,
        first: Linear,
        rows: tuple[Value, int],
        batch: tuple[Value, int] = (1, 1),
    ) -> list[Statement]:
        """The vector unit's part on a tile in UB: its columns, of which the bias's buffer begins
        with ``first``, its rows and matrices, each with the most that there are."""
        if self.bias is None and self.summand is None:
            return []
        found: list[Statement] = [isa.mask_of(LANES, LANES)]
        count, most = columns.size // CUBE, columns.most // CUBE
        if self.bias is not None:
            local = columns.start.less(first).times(2).value
            relu = self.relu and self.summand is None
            row = Place(homes[self.bias].buffer, local)
            if batch[1] > 1:
                around = Loop("e", batch[0])
                block = tile.at(around.variable * (count * rows[0] * BLOCK))
                around.body.append(add_rows(block, row, count, *rows, "j", relu=relu))
                found.append(around)
            else:
                found.append(add_rows(tile, row, count, *rows, "j", relu=relu))
        if self.summand is not None:
            summand = Place(homes[self.summand].buffer)
            repeats = count * batch[0] * rows[0] // REPEAT_ROWS
            largest = most * batch[1] * rows[1] // REPEAT_ROWS
            found.append(flat("vadd", tile, (tile, summand), repeats, largest, "j"))
            if self.relu:
                found.append(flat("vrelu", tile, (tile,), repeats, largest, "j"))
        return found


REPEAT_ROWS = LANES // CUBE
"""Rows of 16 halves in a repeat."""
