"""Relations of elements, and choices by them: comparisons, where, and numbers in place of NaN.

A comparison of whole repeats leaves a bit for each element, and ``vsel`` chooses by 128 of them.
Booleans are bytes in main memory, 0 or 1, and halves in UB. Operands broadcast along rows; what is
alike in all elements is a block. Halves alone: the vector unit compares no others on all cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.broadcast import merged
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import Operand, Shape
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
    for end in ends:
        tiles.filled(Grid(end), 1, isa.LANES, "0.0f")
    return Choice(Place(tiles.kept("bits", CHOICE_BITS, BOOLEAN)), (ends[0], ends[1]))


def choice_bytes(constants: int) -> int:
    """Bytes of UB of ``choice_room``, and of so many blocks of elements alike."""
    return ENDS + CHOICE_BITS + BLOCK + constants * BLOCK


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
    pairs = zip(operands, shapes, strict=True)
    given = [Operand(operand, shape, elements[operand]) for operand, shape in pairs]
    shape = tuple(map(total, extents))
    if any(operand.shape[-1] < shape[-1] for operand in given):
        raise refuse("lower-operation", f"{name} would broadcast a column of halves")
    own = 2 * (sum(operand.width for operand in given) + (2 if selects else 1))
    own += 2 * sum(operand.element == BOOLEAN for operand in given) + (0 if selects else 2)
    room = core.ub - choice_bytes(5)
    most = room // (own + 4) // isa.LANES * isa.LANES
    last = Operand("out", shape, "half" if selects else BOOLEAN)
    columns = cut(extents[-1], most, isa.LANES, BLOCK // last.width)
    # Rows of whole blocks of bytes.
    padded_columns = columns.size + -columns.size % BLOCK
    rows = cut(extents[-2], max(min(room // (own * padded_columns), MAX_BURSTS), 1), 1)
    tiles = Tiles(name, core, (*map(each, extents[:-2]), rows, columns))
    scratch, vectors = choice_room(tiles), Vectors()
    size = columns.size
    grids = {operand: tiles.alike(operand, value) for operand, value in (constants or {}).items()}
    tensors: list[Tensor] = []
    for operand in given:
        tensor, grid = operand.load(tiles, rows.size, size)
        tensors.append(tensor)
        if operand.element == BOOLEAN:
            count, wide = (rows.size if operand.rows else 1), pitch_of(size, 2)
            halves = Place(tiles.kept(f"{operand.name}16", count * wide, "half"))
            grid, narrow = Grid(halves, wide if operand.rows else 0), grid
            # Whole blocks, which are compared on.
            vectors.operation("cast", grid, (narrow,), count, -(-size // 16) * 16)
        grids[operand.name] = grid
    pitch, wide = pitch_of(size, last.width), pitch_of(size, 2)
    home = Grid(Place(tiles.tile("out", rows.size * pitch, last.element)), pitch)
    if selects:
        compared, chosen = (grids["c"], tiles.alike("nothing", "0.0f")), (grids["x"], grids["y"])
        vectors.choose("ne", home, compared, chosen, rows.size, size, scratch)
    else:
        halves = Grid(Place(tiles.kept("out16", rows.size * wide, "half")), wide)
        chosen = tiles.alike("yes", "1.0f"), tiles.alike("no", "0.0f")
        compared = grids["x"], grids["y"]
        vectors.choose(RELATIONS[relation], halves, compared, chosen, rows.size, size, scratch)
        vectors.operation("cast", home, (halves,), rows.size, size)
    tiles.body.extend(vectors.body)
    out = last.store(tiles, home, rows.size, size)
    named = " and ".join(str(operand.shape) for operand in given)
    return tiles.program((*tensors, out), f"{relation} of {named}")
