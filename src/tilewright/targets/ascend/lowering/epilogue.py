"""What follows a product on its way to main memory: bias, a second summand, relu or a function.

Alone, relu comes with the conversion to halves on the way from L0C to UB. Otherwise the vector unit
computes on the converted tile in UB: blocks of 16 columns one behind the other, each with all rows.
Functions are those of recipes.py, on halves as their kernels of their own compute them; what these
need beside the tile lies in the room that is left of UB, ``EPILOGUE_BYTES`` at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.recipes import Recipe, Step, recipe_of
from tilewright.targets.ascend.kernels.vectors import CASTS, number
from tilewright.targets.ascend.lowering.functions import NAMES, scalars_of
from tilewright.targets.ascend.lowering.nest import Linear, Span
from tilewright.targets.ascend.lowering.walk import Homes
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import Buffer, Loop, Place, Statement, Value, least
from tilewright.targets.ascend.vectors import LANES, add_rows, flat
from tilewright.tile.dialect import ComputeOp


@dataclass
class Function:
    """A function of each element, by a recipe, and its constants as C."""

    recipe: Recipe
    scalars: tuple[str, ...]
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    """Constants, and temporaries of ``repeats`` repeats, once there is room for them."""
    repeats: int = 0

    @property
    def alike(self) -> Mapping[str, str]:
        """Blocks whose elements are alike, and these."""
        return {
            **self.recipe.constants,
            **dict(zip(self.recipe.scalars, self.scalars, strict=True)),
        }

    @property
    def element(self) -> str:
        """Of temporaries and constants."""
        return "float" if self.recipe.wide else "half"

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Buffers of a portion, with those of a half's float where it is computed in floats."""
        return (*self.recipe.temporaries, *(("x", "out") if self.recipe.wide else ()))

    def place(self, first: int, room: int) -> None:
        """Give constants and temporaries their places in UB, from a byte on."""
        each = REPEAT_BLOCKS * BLOCK
        constants, temporaries = list(self.alike), self.temporaries
        left = (room - first - each * len(constants)) // (each * max(len(temporaries), 1))
        self.repeats = min(left, MAX_REPEAT)
        if self.repeats < 1:
            raise refuse("plan-capacity", f"{room - first} bytes of ub hold no function")
        sizes = {
            **dict.fromkeys(constants, each),
            **dict.fromkeys(temporaries, each * self.repeats),
        }
        for name, size in sizes.items():
            self.buffers[name] = Buffer(f"f_{name}", "ub", first, size, element=self.element)
            first += size

    def fills(self) -> list[Statement]:
        """What makes the constants."""
        lanes = REPEAT_BLOCKS * BLOCK // isa.WIDTHS[self.element]
        return [
            isa.mask_of(lanes, lanes),
            *(
                isa.vector(
                    *("vector_dup", Place(self.buffers[name]), (), 1, (1,), (REPEAT_BLOCKS,)),
                    f"({self.element}){scalar}",
                )
                for name, scalar in self.alike.items()
            ),
        ]

    def steps(self) -> list[Step]:
        """On ``tile``, which a function of floats reads and writes by conversions."""
        if self.recipe.wide:
            around = Step("cast", "x", ("tile",)), Step("cast", "tile", ("out",))
            return [around[0], *self.recipe.steps, around[1]]
        names = {"x": "tile", "out": "tile"}
        return [
            Step(
                step.name,
                names.get(step.to, step.to),
                tuple(names.get(source, source) for source in step.sources),
                step.scalar,
            )
            for step in self.recipe.steps
        ]

    def statements(self, tile: Place, halves: Value, most: int, loop: str) -> list[Statement]:
        """The function of so many halves side by side, whole repeats; ``most`` at the most."""
        wide = isa.WIDTHS[self.element]
        lanes = REPEAT_BLOCKS * BLOCK // wide
        repeats, largest = halves // lanes, most // lanes
        around = Loop(loop, 1)
        start, count = 0, repeats
        if largest > self.repeats:
            around = Loop(loop, (repeats + (self.repeats - 1)) // self.repeats)
            start = around.variable * self.repeats
            count = least(self.repeats, repeats - start)

        def part(name: str) -> tuple[Place, int, int]:
            """Where an operand lies, and its strides of blocks and repeats."""
            if name == "tile":
                return tile.at(start * (lanes * 2)), 1, REPEAT_BLOCKS * 2 // wide
            place = Place(self.buffers[name])
            return (place, 0, 0) if name in self.alike else (place, 1, REPEAT_BLOCKS)

        body: list[Statement] = []
        for step in self.steps():
            places, blocks, strides = zip(*map(part, (step.to, *step.sources)), strict=True)
            name = step.name
            if name == "cast":
                name = CASTS[isa.element_of(places[1]), isa.element_of(places[0])]
            body.append(
                isa.vector(name, places[0], places[1:], count, blocks, strides, step.scalar, lanes)
            )
        around.body += body
        mask = isa.mask_of(lanes, lanes)
        return [mask, *(body if largest <= self.repeats else [around])]


@dataclass
class Epilogue:
    """The stages of a compute behind its first."""

    bias: SSAValue | None = None
    summand: SSAValue | None = None
    relu: bool = False
    function: Function | None = None
    room: int = 0
    """Bytes of UB."""
    before: list[Statement] = field(default_factory=list[Statement])
    """In front of all loops."""
    work: list[Buffer] = field(default_factory=list[Buffer])
    """What functions need beside the tile."""

    @classmethod
    def of(cls, compute: ComputeOp, core: DaVinci) -> Epilogue:
        """Read off the stages; refuses (``lower-operation``) others."""
        anchor, *rest = compute.stages
        epilogue = cls(anchor.inputs[2] if len(anchor.inputs) > 2 else None, room=core.ub)
        value = anchor.result
        for stage in rest:
            operation = stage.operation.data
            recipe = recipe_of(NAMES.get(operation, operation), core)
            if operation == "add" and not epilogue.relu and epilogue.summand is None:
                others = [one for one in stage.inputs if one is not value]
                windows = {str(window) for window in stage.windows.data}
                if len(others) != 1 or len(windows) != 1:
                    raise refuse(
                        "lower-operation", "a product is added to what is not of its shape"
                    )
                epilogue.summand = others[0]
            elif operation == "relu":
                epilogue.relu = True
            elif operation == "cast":
                pass
            elif recipe is not None and recipe.operands == 1 and epilogue.function is None:
                parameters = {str(key): value for key, value in stage.get("parameters", ())}
                scalars = map(number, scalars_of(operation, parameters))
                epilogue.function = Function(recipe, tuple(scalars))
            else:
                raise refuse("lower-operation", f"no kernel has {operation} behind a product")
            value = stage.result
        return epilogue

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
        if self.bias is None and self.summand is None and self.function is None:
            return []
        body: list[Statement] = [isa.mask_of(LANES, LANES)]
        count, most = columns.size // CUBE, columns.most // CUBE
        if self.bias is not None:
            local = columns.start.less(first).times(2).value
            relu = self.relu and self.summand is None
            row = Place(homes[self.bias].buffer, local)
            if batch[1] > 1:
                around = Loop("e", batch[0])
                block = tile.at(around.variable * (count * rows[0] * BLOCK))
                around.body.append(add_rows(block, row, count, *rows, "j", relu=relu))
                body.append(around)
            else:
                body.append(add_rows(tile, row, count, *rows, "j", relu=relu))
        if self.summand is not None:
            summand = Place(homes[self.summand].buffer)
            repeats = count * batch[0] * rows[0] // REPEAT_ROWS
            largest = most * batch[1] * rows[1] // REPEAT_ROWS
            body.append(flat("vadd", tile, (tile, summand), repeats, largest, "j"))
            if self.relu:
                body.append(flat("vrelu", tile, (tile,), repeats, largest, "j"))
        if self.function is not None:
            if not self.work:
                ends = (
                    home.buffer.address + home.buffer.bytes * home.buffer.slots
                    for home in homes.values()
                    if home.memory == "ub"
                )
                self.function.place(max(ends), self.room)
                self.work += self.function.buffers.values()
                self.before += self.function.fills()
            halves = count * batch[0] * rows[0] * CUBE
            body += self.function.statements(tile, halves, most * batch[1] * rows[1] * CUBE, "f")
        return body


REPEAT_ROWS = LANES // CUBE
"""Rows of 16 halves in a repeat."""
