"""The epilogue of a product on its way to main memory: bias, a second summand, relu or a function.

Alone, relu comes with the conversion to halves on the way from L0C to UB. Otherwise the vector unit
computes on the converted tile in UB: blocks of 16 columns one after another, each with all rows.
Sums of integers come as they are, a part of a column of blocks at a time: the vector unit adds the
bias, makes them floats, multiplies by the columns' factors and rounds to the tile's halves.
Functions are those of recipes.py, on halves as their kernels of their own compute them; what these
need beside the tile lies in the room that is left of UB, ``EPILOGUE_BYTES`` at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.codegen.nest.value import Value, least
from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.recipes import NAMES, Recipe, Step, recipe_of, scalars_of
from tilewright.targets.ascend.kernels.vectors import Room, add_rows, flat, number, pieces
from tilewright.targets.ascend.lowering.nest import Span
from tilewright.targets.ascend.lowering.walk import Forms
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.network import EPILOGUE_BYTES
from tilewright.targets.ascend.program import Buffer, Loop, Place, Statement
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp


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
        """The element type of temporaries and constants."""
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
        sizes = dict.fromkeys(constants, each) | dict.fromkeys(temporaries, each * self.repeats)
        free = Room(room, "a function", first)
        self.buffers = {n: free.buffer(f"f_{n}", sizes[n], self.element) for n in sizes}

    def fills(self) -> list[Statement]:
        """Return the statements that fill the constants."""
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
        return [step.renamed({"x": "tile", "out": "tile"}) for step in self.recipe.steps]

    def statements(self, tile: Place, halves: Value, most: int, loop: str) -> list[Statement]:
        """The function of ``halves`` halves (``most`` at most) side by side, in whole repeats."""
        wide = isa.WIDTHS[self.element]
        lanes = REPEAT_BLOCKS * BLOCK // wide

        def piece(start: Value, count: Value) -> list[Statement]:
            def part(name: str) -> tuple[Place, int, int]:
                """Return the address of an operand, and its strides of blocks and repeats."""
                if name == "tile":
                    return tile.at(start * (lanes * 2)), 1, REPEAT_BLOCKS * 2 // wide
                place = Place(self.buffers[name])
                return (place, 0, 0) if name in self.alike else (place, 1, REPEAT_BLOCKS)

            return [step.statement(part, count, lanes) for step in self.steps()]

        repeats, largest = halves // lanes, most // lanes
        return [isa.mask_of(lanes, lanes), *pieces(piece, repeats, largest, loop, self.repeats)]


@dataclass
class Epilogue:
    """The stages of a compute after its first."""

    forms: Forms
    bias: SSAValue | None = None
    summand: SSAValue | None = None
    factors: SSAValue | None = None
    """For integers, the value of a unit of the sums in each column."""
    relu: bool = False
    function: Function | None = None
    room: tuple[int, int] = (0, 0)
    """The first of the bytes of UB that are left for it, and the end."""
    wide: Buffer | None = None
    """The buffer in which sums of integers become floats."""

    @classmethod
    def of(cls, compute: ComputeOp, forms: Forms) -> Epilogue:
        """Read off the stages of a compute in some forms; refuses (``lower-operation``) others."""
        anchor, *rest = compute.stages
        bias = anchor.inputs[2] if len(anchor.inputs) > 2 else None
        epilogue = cls(forms, bias, room=room_of(compute, forms.program, forms.core))
        value = anchor.result
        for stage in rest:
            operation = stage.operation.data
            recipe = recipe_of(NAMES.get(operation, operation), forms.core)
            if operation == "add" and not epilogue.relu and epilogue.summand is None:
                others = [operand for operand in stage.inputs if operand is not value]
                windows = {str(window) for window in stage.windows.data}
                if len(others) != 1 or len(windows) != 1:
                    raise refuse(
                        "lower-operation", "a product is added to what is not of its shape"
                    )
                epilogue.summand = others[0]
            elif operation == "dequantise_linear" and not stage.get("zero", 0):
                epilogue.factors = stage.inputs[1]
            elif operation == "relu":
                epilogue.relu = True
            elif operation == "cast":
                pass
            elif recipe is not None and recipe.operands == 1 and epilogue.function is None:
                parameters = {str(key): value for key, value in stage.get("parameters", ())}
                scalars = map(number, scalars_of(operation, parameters))
                epilogue.function = Function(recipe, tuple(scalars))
            else:
                raise refuse("lower-operation", f"no kernel applies {operation} to a product")
            value = stage.result
        return epilogue

    @property
    def mode(self) -> str:
        """The mode of the conversion on the way to UB."""
        early = self.relu and self.bias is None and self.summand is None
        return "CRMODE_F32toF16_RELU" if early else "CRMODE_F32toF16_NONE"

    def dequantised(
        self,
        tile: Place,
        sums: Place,
        columns: Span,
        rows: tuple[Value, int],
        batch: tuple[Value, int] = (1, 1),
    ) -> list[Statement]:
        """Sums of integers in L0C as the tile of halves in UB, with what follows them."""
        if self.factors is None:
            raise refuse("lower-operation", "sums of integers are dequantised on their way out")
        if self.wide is None:
            first, end = self.room
            spare = EPILOGUE_BYTES if self.function is not None else 0
            part = min((end - first - spare) // FOUR_ROWS, MAX_REPEAT // 2) // 4 * 4
            if part < 4:
                raise refuse("plan-capacity", f"{end - first} bytes of ub hold no sums")
            self.wide = Buffer("wide", "ub", first, part * FOUR_ROWS, element="int32_t")
            self.forms.work.append(self.wide)
        most = self.wide.bytes // FOUR_ROWS * 4
        size = min(most, rows[1])
        matrix, block = Loop("e", batch[0]), Loop("q", columns.size // CUBE)
        part = Loop("r", 1 if rows[1] <= size else (rows[0] + (size - 1)) // size)
        start = part.variable * size if rows[1] > size else 0
        count = least(size, rows[0] - start) if rows[1] > size else rows[0]
        first = block.variable * rows[0] + start
        if batch[1] > 1:
            first = matrix.variable * (columns.size // CUBE * rows[0]) + first
        part.body += self._floats(tile, sums, columns, block, (first, count))
        block.body.append(part)
        body: Loop = block
        if batch[1] > 1:
            body = matrix
            matrix.body.append(block)
        after = self.statements(tile, columns, rows, batch)
        return [isa.mask_of(FLOATS, FLOATS), body, *after]

    def _floats(
        self,
        tile: Place,
        sums: Place,
        columns: Span,
        block: Loop,
        part: tuple[Value, Value],
    ) -> list[Statement]:
        """Rows of 16 of a column of blocks: the first of all in the tile, and how many."""
        assert self.wide is not None and self.factors is not None
        at, count = part
        integers, floats = Place(self.wide), Place(self.wide, element="float")
        body: list[Statement] = [
            isa.cc_to_ub(integers, sums.at(at * (CUBE * 4)), 1, count // CUBE, "CRMODE_NONE")
        ]

        def along(name: str, place: Place, operand: SSAValue) -> None:
            """An operation of every row and 16 numbers, 8 at a time: two blocks of a row."""
            for half in range(2):
                row = self._row(operand, columns, 4, block.variable * (CUBE * 4)).at(half * BLOCK)
                target = place.at(half * BLOCK)
                strides = (2, 2, 0), (2 * REPEAT_BLOCKS, 2 * REPEAT_BLOCKS, 0)
                repeats = count // REPEAT_BLOCKS
                body.append(isa.vector(name, target, (target, row), repeats, *strides))

        if self.bias is not None:
            along("vadd", integers, self.bias)
        repeats, flat_strides = count // 4, ((1, 1), (REPEAT_BLOCKS, REPEAT_BLOCKS))
        body.append(isa.vector("vconv_s322f32", floats, (integers,), repeats, *flat_strides))
        along("vmul", floats, self.factors)
        halves = tile.at(at * (CUBE * 2))
        narrowing = (1, 1), (REPEAT_BLOCKS // 2, REPEAT_BLOCKS)
        body.append(isa.vector("vconv_f322f16", halves, (floats,), repeats, *narrowing))
        return body

    def _row(self, operand: SSAValue, columns: Span, width: int, further: Value = 0) -> Place:
        """The place in a row's buffer, ``further`` bytes after the first number of a tile's
        columns."""
        home = self.forms.homes[operand]
        first = self.forms.column(home).start
        return Place(home.buffer, further + (columns.start - first) * width)

    def statements(
        self, tile: Place, columns: Span, rows: tuple[Value, int], batch: tuple[Value, int] = (1, 1)
    ) -> list[Statement]:
        """The vector unit's part on a tile in UB: its columns, its rows and matrices, each with the
        most that there are."""
        relu = self.factors is not None and self.relu
        bias = self.bias if self.factors is None else None
        if bias is None and self.summand is None and self.function is None and not relu:
            return []
        body: list[Statement] = [isa.mask_of(isa.LANES, isa.LANES)]
        count, most = columns.size // CUBE, columns.most // CUBE
        lines, largest = count * batch[0] * rows[0], most * batch[1] * rows[1] // REPEAT_ROWS

        def whole(name: str, *sources: Place) -> Statement:
            """An operation on all of the tile."""
            return flat(name, tile, sources, lines // REPEAT_ROWS, largest, "j")

        if relu:
            body.append(whole("vrelu", tile))
        if bias is not None:
            relu = self.relu and self.summand is None
            row = self._row(bias, columns, 2)
            around = Loop("e", batch[0] if batch[1] > 1 else 1)
            block = tile.at(around.variable * (count * rows[0] * BLOCK))
            around.body.append(add_rows(block, row, count, *rows, "j", relu=relu))
            body.append(around)
        if self.summand is not None:
            summand = Place(self.forms.homes[self.summand].buffer)
            body.append(whole("vadd", tile, summand))
            if self.relu:
                body.append(whole("vrelu", tile))
        if self.function is not None:
            if not self.function.buffers:
                begin, end = self.room
                if self.wide is not None:
                    begin = self.wide.address + self.wide.bytes
                self.function.place(begin, end)
                self.forms.work += self.function.buffers.values()
                self.forms.before += self.function.fills()
            lanes = most * batch[1] * rows[1] * CUBE
            body += self.function.statements(tile, lines * CUBE, lanes, "f")
        return body


def _uses_room(compute: ComputeOp) -> bool:
    """Return True unless a compute is a product that only rounds its sums of floats."""
    first, *rest = (stage.operation.data for stage in compute.stages)
    return first != "matmul" or any(operation != "cast" for operation in rest)


def room_of(compute: ComputeOp, program: ProgramOp, core: DaVinci) -> tuple[int, int]:
    """A compute's part of the bytes of UB after all buffers."""
    computes: list[ComputeOp] = []
    first = 0
    for op in program.walk():
        if isinstance(op, ComputeOp) and (op is compute or _uses_room(op)):
            computes.append(op)
        elif isinstance(op, BufferOp) and op.memory == "ub":
            first = max(first, op.get("address") + op.get("bytes") * op.places)
    each = (core.ub - first) // len(computes) // BLOCK * BLOCK
    first += computes.index(compute) * each
    return first, core.ub if compute is computes[-1] else first + each


REPEAT_ROWS = isa.LANES // CUBE
"""Rows of 16 halves in a repeat."""

FLOATS = isa.LANES // 2
"""Floats of a repeat."""

FOUR_ROWS = REPEAT_BLOCKS * BLOCK
"""Bytes of the floats of a repeat: four rows of 16."""
