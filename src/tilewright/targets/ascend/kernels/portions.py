"""An operation of one operand on elements as they lie, between the launches of other kernels.

A tile is one row, a portion of whole repeats. Elementwise kernels of a network come from their tile
programs (lowering/elements.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import refuse
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.recipes import compute, recipe_of
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut
from tilewright.targets.ascend.kernels.transfers import SLACK, load_rows, store_rows
from tilewright.targets.ascend.kernels.vectors import REPEAT, Grid, Vectors
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import Place, Program, Tensor


def portions(
    operation: str,
    element: str,
    size: Extent,
    core: DaVinci,
    *,
    scalars: Sequence[str] = (),
    name: str = "",
) -> Program:
    """The kernel of an operation on ``size`` elements, without flags.

    Parameters are x and out; ``scalars`` are C's. Refuses (``lower-operation``) what the core has
    no recipe for.
    """
    recipe = recipe_of(operation, core)
    if recipe is None or element not in recipe.types:
        raise refuse("lower-operation", f"{core.name} has no {operation} of {element}")
    stored, kinds = recipe.types[element], recipe.kinds
    temporaries = {each: kinds.get(each, element) for each in recipe.temporaries}
    widths = [WIDTHS[kind] for kind in (element, stored, *temporaries.values())]
    lanes = REPEAT // max(widths)
    alike = dict(zip(recipe.scalars, scalars, strict=True))
    room = core.ub - len(alike) * BLOCK
    most = min(room // (2 * sum(widths) * lanes), MAX_REPEAT)
    if most < 1:
        raise refuse("plan-capacity", f"{name}: {core.ub} bytes of ub hold no repeat")
    columns = cut(size, most * lanes, lanes, BLOCK // WIDTHS[stored])
    tiles, vectors = Tiles(name or operation, core, (cut(1, 1), columns)), Vectors()
    sizes, start = (1, columns.size), tiles.starts[-1]
    x, out = (
        Tensor(each, total(size) * WIDTHS[kind] + SLACK, kind, written=each == "out")
        for each, kind in (("x", element), ("out", stored))
    )
    grids: dict[str, Grid] = {}
    for each, value in alike.items():
        grids[each] = tiles.alike(each, value, kinds.get(each, element))
    for each, kind in (("x", element), ("out", stored)):
        slot = padded(columns.size * WIDTHS[kind], BLOCK)
        grids[each] = Grid(Place(tiles.tile(each, slot, kind)))
    for each, kind in temporaries.items():
        grids[each] = Grid(Place(tiles.kept(each, columns.size * WIDTHS[kind], kind)))
    compute(vectors, recipe.steps, grids, *sizes)
    (width, wide), (home, stored_home) = (
        (WIDTHS[element], WIDTHS[stored]),
        (grids["x"].place, grids["out"].place),
    )
    tiles.body.extend(load_rows(home, 0, Place(x, start * width), *sizes, width))
    tiles.body.extend(vectors.body)
    tiles.body.extend(store_rows(stored_home, 0, Place(out, start * wide), *sizes, wide))
    return tiles.program((x, out), f"{operation} of {total(size)} {element}")
