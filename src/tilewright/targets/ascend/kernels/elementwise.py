"""Elementwise operations on flat tensors: portions, masks, and tails by overlap.

Elements are taken in portions that fill UB, of whole repeats; what is left is computed in repeats
of which the last has a mask. Where the rest is no whole number of blocks of 32 bytes, the last
portion begins earlier, so that it ends with the tensor, and some elements are computed twice (the
thesis' overlap, 6.4.3). Where there is no portion before, or the result is written in place of an
operand, which must not be read again then, the portion reads and writes up to 30 bytes past the end
instead: whoever allocates tensors pads them to ``SLACK``.

Each operation is a list of vector instructions over named buffers, as ``RECIPES`` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import (
    Buffer,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    Value,
)

SLACK = 32
"""Bytes behind a tensor that kernels may touch."""

FLOATS = ("half", "float")
NUMBERS = (*FLOATS, "int32_t")


@dataclass(frozen=True)
class Step:
    """One vector instruction over buffers; a scalar stands behind the sources, as C."""

    name: str
    to: str
    sources: tuple[str, ...]
    scalar: str = ""


@dataclass(frozen=True)
class Recipe:
    """An operation: how many operands, of which types, its steps over x, y, z, t and u.

    ``types`` maps the operands' element to the result's. The last step writes ``out``. Buffers that
    hold a scalar (``dup``) take one block, and are read with stride 0.
    """

    operands: int
    types: dict[str, str]
    steps: tuple[Step, ...]
    scalars: int = 0
    temporaries: tuple[str, ...] = ()
    wide: bool = False
    """Whether temporaries are floats, to which halves are converted first and back at last."""


def _binary(name: str, types: Sequence[str]) -> Recipe:
    return Recipe(2, {t: t for t in types}, (Step(name, "out", ("x", "y")),))


def _unary(name: str, types: Sequence[str]) -> Recipe:
    return Recipe(1, {t: t for t in types}, (Step(name, "out", ("x",)),))


_GELU = (
    Step("vmul", "t", ("x", "x")),
    Step("vmul", "t", ("t", "x")),
    Step("vmuls", "t", ("t",), "0.044715f"),
    Step("vadd", "t", ("t", "x")),
    Step("vmuls", "t", ("t",), f"{-2 * sqrt(2 / pi):.9g}f"),
    Step("vexp", "t", ("t",)),
    Step("vadds", "t", ("t",), "1.0f"),
    Step("vdiv", "out", ("x", "t")),
)
"""x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))), which is the form with tanh."""

RECIPES: dict[str, Recipe] = {
    "add": _binary("vadd", NUMBERS),
    "sub": _binary("vsub", NUMBERS),
    "mul": _binary("vmul", NUMBERS),
    "div": _binary("vdiv", FLOATS),
    "max": _binary("vmax", NUMBERS),
    "min": _binary("vmin", NUMBERS),
    "relu": _unary("vrelu", FLOATS),
    "exp": _unary("vexp", FLOATS),
    "clamp": Recipe(
        1,
        {t: t for t in NUMBERS},
        (Step("vmax", "out", ("x", "low")), Step("vmin", "out", ("out", "high"))),
        scalars=2,
    ),
    "cast": Recipe(1, {"half": "float", "float": "half"}, (Step("cast", "out", ("x",)),)),
    "gelu": Recipe(1, {t: t for t in FLOATS}, _GELU, temporaries=("t",), wide=True),
}
"""What there is. 910 has no operation with a scalar bound, so clamp keeps both in blocks."""

_CASTS = {("half", "float"): "vconv_f162f32", ("float", "half"): "vconv_f322f16"}


@dataclass
class _Elementwise:
    operation: str
    element: str
    size: int
    core: DaVinci
    in_place: bool
    scalars: tuple[str, ...]
    name: str
    ub: int

    def __post_init__(self) -> None:
        recipe = RECIPES.get(self.operation)
        if recipe is None or self.element not in recipe.types:
            raise refuse(
                "lower-operation",
                f"{self.core.name} has no {self.operation} of {self.element}",
                help=", ".join(RECIPES),
            )
        self.recipe = recipe
        self.result = recipe.types[self.element]
        if self.in_place and self.result != self.element:
            raise refuse("lower-operation", f"{self.operation} changes the element's size")
        self.steps = self._steps()
        self.wide = max(isa.WIDTHS[kind] for kind in self._kinds().values())
        self.lanes = REPEAT_BLOCKS * BLOCK // self.wide
        narrow = min(isa.WIDTHS[self.element], isa.WIDTHS[self.result])
        self.granule = BLOCK // narrow
        scalar_bytes = BLOCK * recipe.scalars
        each = sum(isa.WIDTHS[kind] for kind in self._kinds().values())
        slots = 2
        most = (self.ub - scalar_bytes) // (slots * each) // self.lanes
        self.portion = min(most, MAX_REPEAT) * self.lanes
        if self.portion < 1:
            raise refuse("plan-capacity", f"{self.name}: {self.ub} bytes of ub hold no repeat")

    def _kinds(self) -> dict[str, str]:
        """Buffer -> element, of those that hold portions."""
        operands = ("x", "y")[: self.recipe.operands]
        kinds = dict.fromkeys(operands, self.element)
        if self._widens:
            kinds |= {f"{name}32": "float" for name in operands}
            kinds |= {"out32": "float"}
        inner = "float" if self.recipe.wide else self.element
        kinds |= dict.fromkeys(self.recipe.temporaries, inner)
        if not self.in_place:
            kinds["out"] = self.result
        return kinds

    @property
    def _widens(self) -> bool:
        return self.recipe.wide and self.element == "half"

    def _steps(self) -> list[Step]:
        if not self._widens:
            return list(self.recipe.steps)
        operands = ("x", "y")[: self.recipe.operands]
        names = {name: f"{name}32" for name in (*operands, "out")}
        steps = [Step("cast", f"{name}32", (name,)) for name in operands]
        for step in self.recipe.steps:
            sources = tuple(names.get(one, one) for one in step.sources)
            steps.append(Step(step.name, names.get(step.to, step.to), sources, step.scalar))
        return [*steps, Step("cast", "out", ("out32",))]

    def program(self) -> Program:
        operands = ("x", "y")[: self.recipe.operands]
        width, out = isa.WIDTHS[self.element], isa.WIDTHS[self.result]
        tensors = {
            name: Tensor(
                name,
                self.size * width + SLACK,
                self.element,
                written=self.in_place and name == "x",
            )
            for name in operands
        }
        if not self.in_place:
            tensors["out"] = Tensor("out", self.size * out + SLACK, self.result, written=True)
        self.tensors = tensors
        self.blocks = {
            name: Buffer(name, "ub", number * BLOCK, BLOCK, element=self.element)
            for number, name in enumerate(("low", "high")[: self.recipe.scalars])
        }
        body: list[Statement] = []
        buffers = list(self.blocks.values())
        whole = self.size // self.portion
        body.append(isa.mask_of(self.lanes, self.lanes))
        for home, scalar in zip(self.blocks.values(), self.scalars, strict=True):
            count = BLOCK // isa.WIDTHS[self.element]
            body += [
                isa.mask_of(self.lanes, count),
                isa.vector("vector_dup", Place(home), (), 1, (1,), (8,), scalar, count),
                isa.mask_of(self.lanes, self.lanes),
            ]
        if whole:
            loop = Loop("p", whole)
            homes = self._buffers(loop, min(2, whole))
            buffers += homes.values()
            loop.body += self._portion(homes, loop.variable * self.portion, self.portion)
            body.append(loop)
        rest = self.size - whole * self.portion
        if rest:
            homes = self._buffers(None, 1)
            buffers += homes.values()
            count = -(-rest // self.granule) * self.granule
            if not whole or self.in_place:
                count = rest
            body += self._portion(homes, self.size - count, count)
        about = f"{self.operation} of {self.size} {self.element}"
        return Program(self.name, tuple(tensors.values()), body, tuple(buffers), about)

    def _buffers(self, scope: Loop | None, slots: int) -> dict[str, Buffer]:
        homes: dict[str, Buffer] = {}
        at = BLOCK * self.recipe.scalars
        for name, kind in self._kinds().items():
            size = self.portion * isa.WIDTHS[kind]
            slot: Value = scope.variable % slots if scope is not None and slots > 1 else 0
            homes[name] = Buffer(name, "ub", at, size, slots, slot, scope, kind)
            at += 2 * size
        return homes

    def _portion(self, homes: dict[str, Buffer], start: Value, count: int) -> list[Statement]:
        """Load, compute and store so many elements; copies take whole blocks."""
        steps: list[Statement] = []
        for name in ("x", "y")[: self.recipe.operands]:
            width = isa.WIDTHS[self.element]
            place = Place(self.tensors[name], start * width)
            steps.append(isa.copy(Place(homes[name]), place, 1, -(-count * width // BLOCK)))
        whole, rest = divmod(count, self.lanes)
        for first, repeat, lanes in ((0, whole, self.lanes), (whole, 1 if rest else 0, rest)):
            if not repeat:
                continue
            if lanes < self.lanes:
                steps.append(isa.mask_of(self.lanes, lanes))
            steps += [self._vector(homes, one, first, repeat, lanes) for one in self.steps]
            if lanes < self.lanes:
                steps.append(isa.mask_of(self.lanes, self.lanes))
        width = isa.WIDTHS[self.result]
        target = self.tensors["x" if self.in_place else "out"]
        source = homes["x" if self.in_place else "out"]
        length = -(-count * width // BLOCK)
        steps.append(isa.copy(Place(target, start * width), Place(source), 1, length))
        return steps

    def _vector(
        self, homes: dict[str, Buffer], step: Step, first: int, repeat: int, lanes: int
    ) -> Statement:
        places: list[Place] = []
        strides: list[tuple[int, int]] = []
        for name in (step.to, *step.sources):
            home = homes.get("x" if name == "out" and self.in_place else name)
            if home is None:
                places.append(Place(self.blocks[name]))
                strides.append((0, 0))
                continue
            width = isa.WIDTHS[home.element]
            places.append(Place(home, first * self.lanes * width))
            strides.append((1, REPEAT_BLOCKS * width // self.wide))
        name = step.name
        if name == "cast":
            name = _CASTS[isa.element_of(places[1]), isa.element_of(places[0])]
        blocks, repeats = (tuple(one[n] for one in strides) for n in (0, 1))
        return isa.vector(name, places[0], places[1:], repeat, blocks, repeats, step.scalar, lanes)


def elementwise(
    operation: str,
    element: str,
    size: int,
    core: DaVinci,
    *,
    in_place: bool = False,
    scalars: tuple[str, ...] = (),
    name: str = "",
    ub: int | None = None,
) -> Program:
    """The kernel of an operation on ``size`` elements, without flags.

    Parameters are the operands, then the result (in place: that of the first operand). ``scalars``
    are C's; ``ub`` limits the memory that portions take. Refuses (``lower-operation``) what the
    core has no instruction for.
    """
    room = core.ub if ub is None else ub
    name = name or operation
    return _Elementwise(operation, element, size, core, in_place, scalars, name, room).program()
