"""Relations of elements, and choices by them: comparisons, where, and numbers in place of NaN.

A comparison of whole repeats leaves a bit for each element, and ``vsel`` chooses by 128 of them.
Booleans are bytes in main memory, 0 or 1, and halves in UB. Operands broadcast along rows; what is
alike in all elements is a block. Halves alone: the vector unit compares no others on all cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.broadcast import Shape, element_place, merged
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, load_rows, store_rows
from tilewright.targets.ascend.kernels.vectors import (
    CHOICE_BITS,
    REPEAT,
    Choice,
    Grid,
    Vectors,
    pitch_of,
)
from tilewright.targets.ascend.machine import BLOCK, MAX_BURSTS, DaVinci
from tilewright.targets.ascend.program import Place, Program, Tensor

RELATIONS = {"less": "lt", "less_equal": "le", "equal": "eq"}
"""The instruction's relation of each operation."""

BOOLEAN = "uint8_t"
"""The element of booleans in main memory."""

ENDS = 2 * REPEAT
"""The number of bytes of ``Choice.ends``."""


def choice_room(tiles: Tiles) -> Choice:
    """Return the buffers that choices need in UB, filled before all loops."""
    ends = [Place(tiles.kept(f"end{number}", REPEAT, "half")) for number in (0, 1)]
    once = Vectors(prefix="c")
    for end in ends:
        once.fill(Grid(end), 1, isa.LANES, "0.0f")
    tiles.before += once.body
    return Choice(Place(tiles.kept("bits", CHOICE_BITS, BOOLEAN)), (ends[0], ends[1]))


def alike(tiles: Tiles, name: str, value: str) -> Grid:
    """A block of one half, filled in front of all loops."""
    home = Grid(Place(tiles.kept(name, BLOCK, "half")), spread=True)
    once = Vectors(prefix="c")
    once.fill(Grid(home.place), 1, BLOCK // 2, value)
    tiles.before += once.body
    return home


def choice_bytes(constants: int) -> int:
    """Bytes of both, for so many blocks."""
    return ENDS + CHOICE_BITS + BLOCK + constants * BLOCK


@dataclass(frozen=True)
class _Operand:
    name: str
    shape: Shape
    element: str

    @property
    def rows(self) -> bool:
        return self.shape[-2] > 1

    def strides(self) -> list[int]:
        """Elements from one index to the next; 0 where it broadcasts."""
        strides: list[int] = []
        step = 1
        for extent in reversed(self.shape):
            strides.append(step if extent > 1 else 0)
            step *= extent
        return strides[::-1]

    def tensor(self, *, written: bool = False) -> Tensor:
        """The parameter of the kernel."""
        size = prod(self.shape) * WIDTHS[self.element] + SLACK
        return Tensor(self.name, size, self.element, written=written)

    def main(self, tensor: Tensor, indices: Sequence[Value]) -> Place:
        """Return the address in main memory at which a tile begins."""
        return element_place(tensor, indices, self.strides())


def choose(
    relation: str,
    result: Sequence[Extent],
    operands: Mapping[str, Shape],
    core: DaVinci,
    *,
    constants: Mapping[str, str] | None = None,
    name: str = "choose",
) -> Program:
    """The kernel of a relation, or of a choice (``relation`` is ``select``), without flags.

    A relation takes x and y, halves, and gives booleans; a choice takes c, booleans, and x and y,
    and gives x where c holds, else y. Parameters are those of ``operands``, with their shapes, in
    that order, and out; the others are ``constants``, C of one number (of c: 0 or 1). Refuses
    (``lower-operation``) operands with a number for each row of many columns.
    """
    selects = relation == "select"
    elements = {"c": BOOLEAN, "x": "half", "y": "half"}
    extents, shapes = merged(result, list(operands.values()))
    given = [
        _Operand(operand_name, shape, elements[operand_name])
        for operand_name, shape in zip(operands, shapes, strict=True)
    ]
    shape = tuple(map(total, extents))
    if any(operand.shape[-1] < shape[-1] for operand in given):
        raise refuse("lower-operation", f"{name} would broadcast a column of halves")
    fixed = dict(constants or {})
    own = 2 * (sum(WIDTHS[operand.element] for operand in given) + (2 if selects else 1))
    own += 2 * sum(operand.element == BOOLEAN for operand in given) + (0 if selects else 2)
    room = core.ub - choice_bytes(5)
    most = room // (own + 4) // isa.LANES * isa.LANES
    last = _Operand("out", shape, "half" if selects else BOOLEAN)
    columns = cut(extents[-1], most, isa.LANES, BLOCK // WIDTHS[last.element])
    # Rows of whole blocks of bytes.
    padded_columns = columns.size + -columns.size % BLOCK
    rows = cut(extents[-2], max(min(room // (own * padded_columns), MAX_BURSTS), 1), 1)
    axes = (*map(each, extents[:-2]), rows, columns)
    tiles = Tiles(name, core, axes)
    indices = [axis.start(place) for axis, place in zip(axes, tiles.variables, strict=True)]
    scratch, vectors = choice_room(tiles), Vectors()
    size = columns.size
    grids = {
        operand_name: alike(tiles, operand_name, f"{value}")
        for operand_name, value in fixed.items()
    }
    tensors: list[Tensor] = []
    for operand in given:
        tensor = operand.tensor()
        tensors.append(tensor)
        count, width = (rows.size if operand.rows else 1), WIDTHS[operand.element]
        pitch = pitch_of(size, width)
        home = Place(tiles.tile(operand.name, count * pitch, operand.element))
        main, apart = operand.main(tensor, indices), operand.shape[-1] * width
        tiles.body.extend(
            load_rows(home, pitch, main, count, size, width, apart, f"row_{operand.name}")
        )
        grid = Grid(home, pitch if operand.rows else 0)
        if operand.element == BOOLEAN:
            wide = pitch_of(size, 2)
            halves = Place(tiles.kept(f"{operand.name}16", count * wide, "half"))
            grid, narrow = Grid(halves, wide if operand.rows else 0), grid
            # Whole blocks, which are compared on.
            vectors.operation("cast", grid, (narrow,), count, -(-size // 16) * 16)
        grids[operand.name] = grid
    out = last.tensor(written=True)
    width = WIDTHS[last.element]
    pitch, wide = pitch_of(size, width), pitch_of(size, 2)
    home = Grid(Place(tiles.tile("out", rows.size * pitch, last.element)), pitch)
    if selects:
        nothing = alike(tiles, "nothing", "0.0f")
        compared, chosen = (grids["c"], nothing), (grids["x"], grids["y"])
        vectors.choose("ne", home, compared, chosen, rows.size, size, scratch)
    else:
        halves = Grid(Place(tiles.kept("out16", rows.size * wide, "half")), wide)
        chosen = alike(tiles, "yes", "1.0f"), alike(tiles, "no", "0.0f")
        compared = grids["x"], grids["y"]
        vectors.choose(RELATIONS[relation], halves, compared, chosen, rows.size, size, scratch)
        vectors.operation("cast", home, (halves,), rows.size, size)
    main, apart = last.main(out, indices), shape[-1] * width
    store = store_rows(main, home.place, pitch, rows.size, size, width, apart, "row_out")
    tiles.body.extend([*vectors.body, *store])
    named = " and ".join(str(operand.shape) for operand in given)
    return tiles.program((*tensors, out), f"{relation} of {named}")
