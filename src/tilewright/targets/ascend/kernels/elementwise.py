"""Elementwise operations on flat tensors: portions, masks, and tails by overlap.

Elements are taken in portions of one size that fill UB, of whole repeats where there are several;
the last one ends with the tensor, so some elements are computed twice (the thesis' overlap, 6.4.3).
In a portion that is no whole number of repeats the last repeat has a mask. Copies take whole blocks
of 32 bytes: whoever allocates tensors pads them to ``SLACK``.

Operations are those of recipes.py; operands that are one constant are blocks, too.

Where a launch says how much of a tensor there is (``Short``), portions lie within one run of what
the length counts, and those after the length are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.recipes import RECIPES, Step, recipe_of
from tilewright.targets.ascend.kernels.shares import Extent, joined, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK
from tilewright.targets.ascend.kernels.vectors import pitch_of
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import LENGTH, Place, Program, Statement, Tensor

SHORT_PORTION = 2048
"""Elements of a portion at most where a launch says how much there is."""


@dataclass(frozen=True)
class Short:
    """A tensor as ``outer`` runs of ``rows`` times ``inner`` elements; a launch has ``LENGTH`` rows
    of each, at most ``longest`` (``rows`` may be more: whole blocks)."""

    outer: Extent
    rows: Extent
    inner: int
    longest: int

    @property
    def run(self) -> Extent:
        """Elements of a run."""
        return joined((self.rows, self.inner))


@dataclass
class _Elementwise:
    operation: str
    element: str
    extent: Extent
    core: DaVinci
    scalars: tuple[str, ...]
    constants: Mapping[str, str]
    name: str
    short: Short | None

    def __post_init__(self) -> None:
        recipe = recipe_of(self.operation, self.core)
        if recipe is None or self.element not in recipe.types:
            raise refuse(
                "lower-operation",
                f"{self.core.name} has no {self.operation} of {self.element}",
                help=", ".join(RECIPES),
            )
        self.recipe = recipe
        self.operands = [
            name for name in ("x", "y")[: recipe.operands] if name not in self.constants
        ]
        self.result = recipe.types[self.element]
        self.widens = recipe.wide and self.element == "half"
        self.kinds = self._kinds()
        self.wide = max(isa.WIDTHS[kind] for kind in self.kinds.values())
        self.lanes = REPEAT_BLOCKS * BLOCK // self.wide

    def _kinds(self) -> dict[str, str]:
        """Buffer -> element, of those that hold portions."""
        kinds = dict.fromkeys(self.operands, self.element)
        if self.widens:
            kinds |= {f"{name}32": "float" for name in (*self.operands, "out")}
        inner = "float" if self.recipe.wide else self.element
        kinds |= {name: self.recipe.kinds.get(name, inner) for name in self.recipe.temporaries}
        return {**kinds, "out": self.result}

    def _steps(self) -> list[Step]:
        if not self.widens:
            return list(self.recipe.steps)
        names = {name: f"{name}32" for name in (*self.operands, "out")}
        steps = [Step("cast", f"{name}32", (name,)) for name in self.operands]
        steps += [step.renamed(names) for step in self.recipe.steps]
        return [*steps, Step("cast", "out", ("out32",))]

    def program(self) -> Program:
        short, recipe = self.short, self.recipe
        alike = {**recipe.constants, **dict(zip(recipe.scalars, self.scalars, strict=True))}
        alike |= self.constants
        each_bytes = sum(isa.WIDTHS[kind] for kind in self.kinds.values())
        most = (self.core.ub - BLOCK * len(alike)) // (2 * each_bytes) // self.lanes
        if most < 1:
            raise refuse("plan-capacity", f"{self.name}: {self.core.ub} bytes of ub hold no repeat")
        portion = min(most, MAX_REPEAT) * self.lanes
        stored = BLOCK // isa.WIDTHS[self.result]
        if short is None:
            tile = cut(self.extent, portion, self.lanes, stored)
            tiles = Tiles(self.name, self.core, (tile,))
        else:
            tile = cut(short.run, min(portion, SHORT_PORTION), self.lanes, stored)
            tiles = Tiles(self.name, self.core, (each(short.outer), tile))
            tiles.shorten(LENGTH * short.inner)
        inner = "float" if self.widens else self.element
        places = {
            name: tiles.alike(name, value, recipe.kinds.get(name, inner)).place
            for name, value in alike.items()
        }
        if self.wide > 2:
            tiles.before.append(isa.mask_of(self.lanes, self.lanes))
        homes = {
            name: Place(tiles.tile(name, pitch_of(tile.size, isa.WIDTHS[kind]), kind))
            for name, kind in self.kinds.items()
        }
        *runs, start = tiles.starts
        if short is not None:
            start = runs[0] * total(short.run) + start
        size = total(self.extent)
        tensors: list[Tensor] = []
        for name in (*self.operands, "out"):
            kind = self.kinds[name]
            width = isa.WIDTHS[kind]
            tensors.append(Tensor(name, size * width + SLACK, kind, written=name == "out"))
            home, main = homes[name], Place(tensors[-1], start * width)
            length = -(-tile.size * width // BLOCK)
            if name == "out":
                tiles.body.extend(self._computed(homes, places, tile.size))
                home, main = main, home
            tiles.body.append(isa.copy(home, main, 1, length))
        about = f"{self.operation} of {size} {self.element}"
        return tiles.program(tensors, about, 0 if short is None else short.longest)

    def _computed(
        self, homes: Mapping[str, Place], alike: Mapping[str, Place], count: int
    ) -> list[Statement]:
        """The operation's steps on so many elements: whole repeats, and one under a mask."""

        def part(first: int, name: str) -> tuple[Place, int, int]:
            """The place of a buffer from a repeat on, and its strides of blocks and repeats."""
            if name in alike:
                return alike[name], 0, 0
            width = isa.WIDTHS[isa.element_of(homes[name])]
            place = homes[name].at(first * self.lanes * width)
            return place, 1, REPEAT_BLOCKS * width // self.wide

        body: list[Statement] = []
        whole, rest = divmod(count, self.lanes)
        if whole:
            body += [step.statement(partial(part, 0), whole, self.lanes) for step in self._steps()]
        if rest:
            body.append(isa.mask_of(self.lanes, rest))
            body += [step.statement(partial(part, whole), 1, rest) for step in self._steps()]
            body.append(isa.mask_of(self.lanes, self.lanes))
        return body


def elementwise(
    operation: str,
    element: str,
    size: Extent,
    core: DaVinci,
    *,
    scalars: tuple[str, ...] = (),
    constants: Mapping[str, str] | None = None,
    name: str = "",
    short: Short | None = None,
) -> Program:
    """The kernel of an operation on ``size`` elements, without flags.

    Parameters are the operands, then the result. ``scalars`` are C's, and so are ``constants``:
    operands, by name, of which all elements are alike. ``short`` says what a launch's length
    counts. Refuses (``lower-operation``) what the core has no instruction for.
    """
    alike = constants or {}
    return _Elementwise(
        operation, element, size, core, scalars, alike, name or operation, short
    ).program()
