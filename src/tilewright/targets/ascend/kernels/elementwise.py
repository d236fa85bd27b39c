"""Elementwise operations on flat tensors: portions, masks, and tails by overlap.

Elements are taken in portions that fill UB, of whole repeats; what is left is computed in repeats
of which the last has a mask. Where the rest is no whole number of blocks of 32 bytes, the last
portion begins earlier, so that it ends with the tensor, and some elements are computed twice (the
thesis' overlap, 6.4.3). Where there is no portion before, or the result is written in place of an
operand, which must not be read again then, the portion reads and writes up to 30 bytes past the end
instead: whoever allocates tensors pads them to ``SLACK``.

Operations are those of recipes.py; operands that are one constant are blocks, too.

Where a launch says how much of a tensor there is (``Short``), portions lie within one run of what
the length counts, all of one size, and those behind the length are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.recipes import RECIPES, Step, recipe_of
from tilewright.targets.ascend.kernels.shares import Extent, joined, share_of, total
from tilewright.targets.ascend.kernels.tiles import cut, each
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import (
    LENGTH,
    Buffer,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    block_places,
)

SLACK = 32
"""Bytes behind a tensor that kernels may touch."""

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
    in_place: bool
    scalars: tuple[str, ...]
    constants: Mapping[str, str]
    name: str
    ub: int
    short: Short | None = None
    even: bool = False

    def __post_init__(self) -> None:
        self.size = total(self.extent)
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
        if self.in_place and self.result != self.element:
            raise refuse("lower-operation", f"{self.operation} changes the element's size")
        self.steps = self._steps()
        self.wide = max(isa.WIDTHS[kind] for kind in self._kinds().values())
        self.lanes = REPEAT_BLOCKS * BLOCK // self.wide
        narrow = min(isa.WIDTHS[self.element], isa.WIDTHS[self.result])
        kinds = recipe.kinds
        self.granule = BLOCK // narrow
        self.stored = BLOCK // isa.WIDTHS[self.result]
        inner = "float" if self._widens else self.element
        alike = {**recipe.constants, **dict(zip(recipe.scalars, self.scalars, strict=True))}
        self.alike = {**alike, **self.constants}
        self.blocks = {
            name: Buffer(name, "ub", number * BLOCK, BLOCK, element=kinds.get(name, inner))
            for number, name in enumerate(self.alike)
        }
        scalar_bytes = BLOCK * len(self.blocks)
        each = sum(isa.WIDTHS[kind] for kind in self._kinds().values())
        slots = 2
        most = (self.ub - scalar_bytes) // (slots * each) // self.lanes
        self.portion = min(most, MAX_REPEAT) * self.lanes
        if self.portion < 1:
            raise refuse("plan-capacity", f"{self.name}: {self.ub} bytes of ub hold no repeat")

    def _kinds(self) -> dict[str, str]:
        """Buffer -> element, of those that hold portions."""
        kinds = dict.fromkeys(self.operands, self.element)
        if self._widens:
            kinds |= {f"{name}32": "float" for name in self.operands}
            kinds |= {"out32": "float"}
        inner = "float" if self.recipe.wide else self.element
        kinds |= {name: self.recipe.kinds.get(name, inner) for name in self.recipe.temporaries}
        if not self.in_place:
            kinds["out"] = self.result
        return kinds

    @property
    def _widens(self) -> bool:
        return self.recipe.wide and self.element == "half"

    def _steps(self) -> list[Step]:
        if not self._widens:
            return list(self.recipe.steps)
        names = {name: f"{name}32" for name in (*self.operands, "out")}
        steps = [Step("cast", f"{name}32", (name,)) for name in self.operands]
        steps += [step.renamed(names) for step in self.recipe.steps]
        return [*steps, Step("cast", "out", ("out32",))]

    def program(self) -> Program:
        width, out = isa.WIDTHS[self.element], isa.WIDTHS[self.result]
        tensors = {
            name: Tensor(
                name,
                self.size * width + SLACK,
                self.element,
                written=self.in_place and name == "x",
            )
            for name in self.operands
        }
        if not self.in_place:
            tensors["out"] = Tensor("out", self.size * out + SLACK, self.result, written=True)
        self.tensors = tensors
        body: list[Statement] = []
        buffers = list(self.blocks.values())
        whole = self.size // self.portion
        body.append(isa.mask_of(self.lanes, self.lanes))
        for (name, home), scalar in zip(self.blocks.items(), self.alike.values(), strict=True):
            count = BLOCK // isa.WIDTHS[home.element]
            if name not in self.recipe.scalars:
                scalar = f"({home.element}){scalar}"
            lanes = REPEAT_BLOCKS * count
            body += [
                isa.mask_of(lanes, count),
                isa.vector("vector_dup", Place(home), (), 1, (1,), (8,), scalar, count),
                isa.mask_of(self.lanes, self.lanes),
            ]
        longest, rest = 0, self.size - whole * self.portion
        share = share_of(self.extent)
        places = share.places
        if self.short is not None:
            longest, rest = self.short.longest, 0
            runs = share_of(self.short.outer), share_of(self.short.rows)
            places = (*runs[0].places, *runs[1].places)
            body.append(self._runs(self.short, buffers))
        elif places or (whole and self.even):
            rest = 0
            tile = cut(share, self.portion, self.lanes, self.stored)
            loop = Loop("p", tile.count)
            homes = self._buffers(loop, min(2, tile.most))
            buffers += homes.values()
            loop.body += self._portion(homes, tile.start(loop.variable), tile.size)
            body.append(loop)
        elif whole:
            loop = Loop("p", whole)
            homes = self._buffers(loop, min(2, whole))
            buffers += homes.values()
            loop.body += self._portion(homes, loop.variable * self.portion, self.portion)
            body.append(loop)
        if rest:
            homes = self._buffers(None, 1)
            buffers += homes.values()
            count = -(-rest // self.granule) * self.granule
            if not whole or self.in_place:
                count = rest
            body += self._portion(homes, self.size - count, count)
        about = f"{self.operation} of {self.size} {self.element}"
        constants, blocks = block_places(places)
        return Program(
            *(self.name, tuple(tensors.values()), body, tuple(buffers), about, longest),
            blocks=blocks,
            constants=constants,
        )

    def _runs(self, short: Short, buffers: list[Buffer]) -> Loop:
        """The portions of every run, all of one size, as far as the length goes."""
        tile, outer = (
            cut(short.run, min(self.portion, SHORT_PORTION), self.lanes, self.stored),
            each(short.outer),
        )
        runs, loop = Loop("run", outer.count), Loop("p", tile.count)
        number = loop.variable + runs.variable * tile.most
        loop.count = tile.until(LENGTH * short.inner)
        homes = self._buffers(loop, min(2, outer.most * tile.most), number)
        buffers += homes.values()
        start = outer.start(runs.variable) * total(short.run) + tile.start(loop.variable)
        loop.body += self._portion(homes, start, tile.size)
        runs.body.append(loop)
        return runs

    def _buffers(
        self, scope: Loop | None, slots: int, number: Value | None = None
    ) -> dict[str, Buffer]:
        homes: dict[str, Buffer] = {}
        at = BLOCK * len(self.blocks)
        for name, kind in self._kinds().items():
            size = self.portion * isa.WIDTHS[kind]
            turn = scope.variable if number is None and scope is not None else number or 0
            slot: Value = turn % slots if slots > 1 else 0
            homes[name] = Buffer(name, "ub", at, size, slots, slot, scope, kind)
            at += 2 * size
        return homes

    def _portion(self, homes: dict[str, Buffer], start: Value, count: int) -> list[Statement]:
        """Load, compute and store so many elements; copies take whole blocks."""
        steps: list[Statement] = []
        for name in self.operands:
            width = isa.WIDTHS[self.element]
            place = Place(self.tensors[name], start * width)
            steps.append(isa.copy(Place(homes[name]), place, 1, -(-count * width // BLOCK)))
        whole, rest = divmod(count, self.lanes)
        for first, repeat, lanes in ((0, whole, self.lanes), (whole, 1 if rest else 0, rest)):
            if not repeat:
                continue
            if lanes < self.lanes:
                steps.append(isa.mask_of(self.lanes, lanes))
            part = partial(self._part, homes, first)
            steps += [step.statement(part, repeat, lanes) for step in self.steps]
            if lanes < self.lanes:
                steps.append(isa.mask_of(self.lanes, self.lanes))
        width = isa.WIDTHS[self.result]
        target = self.tensors["x" if self.in_place else "out"]
        source = homes["x" if self.in_place else "out"]
        length = -(-count * width // BLOCK)
        steps.append(isa.copy(Place(target, start * width), Place(source), 1, length))
        return steps

    def _part(self, homes: dict[str, Buffer], first: int, name: str) -> tuple[Place, int, int]:
        """The place of a buffer from a repeat on, and its strides of blocks and repeats."""
        home = homes.get("x" if name == "out" and self.in_place else name)
        if home is None:
            return Place(self.blocks[name]), 0, 0
        width = isa.WIDTHS[home.element]
        return Place(home, first * self.lanes * width), 1, REPEAT_BLOCKS * width // self.wide


def elementwise(
    operation: str,
    element: str,
    size: Extent,
    core: DaVinci,
    *,
    in_place: bool = False,
    scalars: tuple[str, ...] = (),
    constants: Mapping[str, str] | None = None,
    name: str = "",
    ub: int | None = None,
    short: Short | None = None,
    even: bool = False,
) -> Program:
    """The kernel of an operation on ``size`` elements, without flags.

    Parameters are the operands, then the result (in place: that of the first operand). ``scalars``
    are C's, and so are ``constants``: operands, by name, of which all elements are alike. ``ub``
    limits the memory that portions take; ``short`` says what a launch's length counts; ``even``
    portions, of a result elsewhere, are all of one size, the last from where it ends with the
    tensor. Refuses
    (``lower-operation``) what the core has no instruction for.
    """
    room = core.ub if ub is None else ub
    name = name or operation
    alike = constants or {}
    return _Elementwise(
        *(operation, element, size, core, in_place, scalars, alike, name, room, short),
        even=even and not in_place,
    ).program()
