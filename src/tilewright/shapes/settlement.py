"""Sizes of a model's dims: what the model leaves open is settled by what the caller asks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from tilewright.errors import Problem, TilewrightError
from tilewright.shapes.forms import (
    LARGEST_SIZE,
    Bounds,
    Shapes,
    Size,
    Wish,
    parse_shape,
    parse_size,
)

Dims = tuple[int | str, ...]
"""Sizes, and names of free dims."""

MOST_ELEMENTS = 1024
"""Elements that an input which is a sequence has at most: each is an input of its own."""


@dataclass(frozen=True)
class TensorDims:
    """An input or output of a model as the model states it."""

    name: str
    dims: Dims | None
    """Dims as stated, those without a size or name as ``NAME.AXIS``; None without a rank."""
    dtype: str = ""
    """NumPy's name of the element type; empty if it is not stated."""
    bounds: Mapping[str, Bounds] = field(default_factory=dict[str, Bounds])
    """The sizes that the model allows its free dims, by their names; any, where nothing is said."""
    listed: bool = False
    """True for a sequence of such tensors, each of which has free dims of its own."""

    def tensors(self, lengths: Mapping[str, int]) -> list[TensorDims]:
        """The tensor itself; those of a sequence, of which ``NAME.0`` is the first."""
        if not self.listed:
            return [self]
        named = list(enumerate(self.dims or ()))
        return [
            TensorDims(
                name := f"{self.name}.{number}",
                None
                if self.dims is None
                else tuple(d if isinstance(d, int) else f"{name}.{axis}" for axis, d in named),
                self.dtype,
            )
            for number in range(lengths.get(self.name, 0))
        ]

    def length(self, names: Collection[str]) -> int:
        """The length of a sequence of which some elements are named."""
        found = (re.fullmatch(re.escape(self.name) + r"\.(\d{1,4})", name) for name in names)
        return max((int(match[1]) + 1 for match in found if match), default=0)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model, before its shapes are settled."""

    inputs: tuple[TensorDims, ...]
    outputs: tuple[TensorDims, ...] = ()
    computed: frozenset[str] = frozenset()
    """Names of the values that nodes compute, whose sizes data may decide."""

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the dims that the inputs leave free."""
        dims = [dim for item in self.inputs for dim in item.dims or ()]
        return tuple(dict.fromkeys(dim for dim in dims if isinstance(dim, str)))


@dataclass(frozen=True)
class Settled:
    """The inputs' shapes: sizes, and names of the dims that stay free."""

    inputs: Mapping[str, Dims]
    """Inputs without any shape are left out."""
    free: Mapping[str, Bounds]
    """The free dims, in the order in which the inputs name them."""
    names: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    """The model's own names of dims: each with its size, or the name that the dim now has."""
    rooms: Mapping[str, int] = field(default_factory=dict[str, int])
    """The largest sizes of computed values whose sizes data decide, by the values' names."""
    lengths: Mapping[str, int] = field(default_factory=dict[str, int])
    """The numbers of elements of the inputs that are sequences; ``inputs`` has the elements."""

    def bind(self, sizes: Mapping[str, int]) -> dict[str, Dims | int]:
        """The inputs' shapes once free dims have sizes, the rooms of values, and lengths."""
        inputs: dict[str, Dims | int] = {
            name: tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
            for name, dims in self.inputs.items()
        }
        return inputs | dict(self.rooms) | dict(self.lengths)

    def leading(self) -> set[str]:
        """Free dims that are only ever an input's first: the batch, as a rule."""
        inner = {dim for dims in self.inputs.values() for dim in dims[1:]}
        return {name for name in self.free if name not in inner}


class _Dim:
    """The size and bounds known of one of the model's names."""

    def __init__(self) -> None:
        self.size: int | None = None
        self.name: str | None = None
        self.bounds: Bounds | None = None
        """Bounds of the size; None where nothing is said."""


class _Settling:
    def __init__(self, inputs: Sequence[TensorDims], problems: list[Problem]) -> None:
        self.dims = {item.name: item.dims for item in inputs}
        self.problems = problems
        self.known: dict[str, _Dim] = {
            dim: _Dim() for item in inputs for dim in item.dims or () if isinstance(dim, str)
        }
        for item in inputs:
            for dim, bounds in item.bounds.items():
                known = self.known[dim]
                known.bounds = self.within(known.bounds, bounds, f"dim {dim!r}")

    def refuse(self, code: str, reason: str, where: str, help: str = "") -> None:
        self.problems.append(Problem(code, reason, where, help))

    def take_shape(self, name: str, value: Size | Sequence[Size]) -> None:
        """The caller's shape of one input."""
        where = f"input {name!r}"
        wishes = parse_shape(value, where)
        stated = self.dims[name]
        if stated is None:
            dims = [f"{name}.{axis}" for axis in range(len(wishes))]
            self.known.update((dim, _Dim()) for dim in dims)
            stated = self.dims[name] = tuple(dims)
        if len(wishes) != len(stated):
            self.refuse(
                "shape-rank",
                f"a shape of {len(wishes)} dims is given for a tensor of rank {len(stated)}",
                where,
                f"the model states {_text(stated)}",
            )
            return
        stated = self.dims[name] = tuple(
            self.opened(f"{name}.{axis}", dim, wish)
            for axis, (dim, wish) in enumerate(zip(stated, wishes, strict=True))
        )
        for axis, (dim, wish) in enumerate(zip(stated, wishes, strict=True)):
            if isinstance(dim, str):
                self.take(dim, wish, where)
            elif wish.size not in (None, dim):
                reason = f"size {wish.size} is given for axis {axis}, which is {dim}"
                self.refuse("shape-fixed", reason, where)
            elif wish.name is not None or wish.bounds is not None:
                reason = f"axis {axis} cannot be free: the model fixes it to {dim}"
                self.refuse("shape-fixed", reason, where, "export the model with this axis dynamic")

    def opened(self, name: str, dim: int | str, wish: Wish) -> int | str:
        """A dim that may be given a size: one that the model fixes to 0, too, which is how some
        exporters write a size that they do not know."""
        if dim != 0 or wish in (Wish(), Wish(size=0)):
            return dim
        self.known[name] = _Dim()
        return name

    def take(self, dim: str, wish: Wish, where: str) -> None:
        """Add what the caller asks of one of the model's names."""
        known = self.known[dim]
        if wish.size is not None and known.size not in (None, wish.size):
            reason = f"dim {dim!r} is {known.size} elsewhere, and {wish.size} here"
            self.refuse("shape-conflict", reason, where)
        if wish.name is not None and known.name not in (None, wish.name):
            reason = f"dim {dim!r} is called {known.name!r} elsewhere, and {wish.name!r} here"
            self.refuse("shape-conflict", reason, where)
        known.size = wish.size if known.size is None else known.size
        known.name = known.name or wish.name
        known.bounds = self.within(known.bounds, wish.bounds, f"dim {dim!r}")

    def within(self, bounds: Bounds | None, other: Bounds | None, where: str) -> Bounds | None:
        """Return the range that two bounds have in common."""
        if bounds is None or other is None:
            return other if bounds is None else bounds
        step = lcm(bounds.step, other.step)
        low = -(-max(bounds.low, other.low) // step) * step
        high = min(bounds.high, other.high)
        if low > high:
            self.refuse("shape-conflict", f"no size lies in both {bounds} and {other}", where)
            return bounds
        return Bounds(low, high, step)

    def result(self) -> Settled:
        """Dims of one name made one; raises nothing, adds to the problems."""
        groups: dict[str, list[str]] = {}
        for dim, known in self.known.items():
            groups.setdefault(known.name or dim, []).append(dim)
        free: dict[str, Bounds] = {}
        names: dict[str, int | str] = {}
        for name, members in groups.items():
            where = f"dim {name!r}"
            bounds: Bounds | None = None
            size: int | None = None
            for member in members:
                known = self.known[member]
                bounds = self.within(bounds, known.bounds, where)
                if size is not None and known.size not in (None, size):
                    self.refuse("shape-conflict", f"is {size} and {known.size}", where)
                size = known.size if size is None else size
            if size is None and bounds is not None and bounds.low == bounds.high:
                size = bounds.low
            if size is not None and bounds is not None and size not in bounds:
                self.refuse("shape-bounds", f"size {size} is outside {bounds}", where)
            names.update(dict.fromkeys(members, name if size is None else size))
            if size is None:
                free[name] = bounds or Bounds()
        inputs = {
            name: tuple(names[dim] if isinstance(dim, str) else dim for dim in dims)
            for name, dims in self.dims.items()
            if dims is not None
        }
        return Settled(inputs, free, names)


def settle(
    inputs: Sequence[TensorDims],
    shapes: Shapes | None,
    problems: list[Problem] | None = None,
    computed: Collection[str] = (),
) -> Settled:
    """Settle the inputs' shapes by what the caller asks for.

    A key of ``shapes`` is an input's name, or else the name of a free dim, or of a ``computed``
    value, of which an axis has a size that data decide: its bound is the axis's room. A size given
    for a dim holds wherever the model uses its name; a new name for it, too; and dims given one
    name have one size. The size of a sequence is its length, which may be left out where elements
    are named. Raises TilewrightError with every problem (``shape-form``, ``shape-bounds``,
    ``shape-rank``, ``shape-fixed``, ``shape-conflict``, ``shape-open``, ``shape-unknown``), or adds
    them to ``problems`` if that is given.
    """
    refusals: list[Problem] = []
    asked = dict(shapes or {})
    lengths = _lengths(inputs, asked, refusals)
    work = _Settling([tensor for item in inputs for tensor in item.tensors(lengths)], refusals)
    later: list[tuple[str, Wish]] = []
    for key, value in asked.items():
        try:
            if key in work.dims:
                work.take_shape(key, value)
            elif value is None or isinstance(value, int | str | Bounds):
                later.append((key, parse_size(value, f"dim {key!r}")))
            else:
                later.append((key, Wish()))  # A shape, of what is no input.
        except TilewrightError as error:
            refusals.extend(error.problems)
    rooms: dict[str, int] = {}
    for key, wish in later:
        dims = [dim for dim, known in work.known.items() if key in (dim, known.name)]
        if not dims and wish != Wish() and {key, key.rpartition(".")[0]} & {*computed}:
            rooms[key] = room = wish.size or (wish.bounds.high if wish.bounds else 0)
            if not 1 <= room < LARGEST_SIZE:
                reason = "a size that data decide takes the most that it may be"
                work.refuse("shape-form", reason, f"value {key!r}", f"{key}=0..100, say")
            continue
        if not dims or wish == Wish():
            known = "is no input" if dims else "is no input and no free dim"
            work.refuse("shape-unknown", f"{key[:200]!r} {known}", "shapes", _help(work))
        for dim in dims:
            work.take(dim, wish, f"dim {key!r}")
    settled = replace(work.result(), rooms=rooms, lengths=lengths)
    if problems is not None:
        problems.extend(refusals)
    elif refusals:
        raise TilewrightError(refusals)
    return settled


def _lengths(
    inputs: Sequence[TensorDims], asked: dict[str, Size | Sequence[Size]], problems: list[Problem]
) -> dict[str, int]:
    """The lengths of sequences, which are taken out of what is ``asked``."""
    lengths: dict[str, int] = {}
    for item in (item for item in inputs if item.listed):
        where, known = f"input {item.name!r}", item.length(asked)
        try:
            wishes = parse_shape(asked.pop(item.name, known or None), where)
        except TilewrightError:
            wishes = ()
        length = wishes[0].size if len(wishes) == 1 else None
        if length is None or not known <= length <= MOST_ELEMENTS:
            for name in [name for name in asked if item.length([name])]:
                del asked[name]  # One refusal is enough.
            problems.append(
                Problem(
                    "shape-open",
                    f"it is a sequence; no number from {known} to {MOST_ELEMENTS} is its length",
                    where,
                    f"give it: --shape {item.name}={known or 2}",
                )
            )
            continue
        lengths[item.name] = length
    return lengths


def _help(work: _Settling) -> str:
    names = {known.name or dim: None for dim, known in work.known.items()}
    dims = f"; the free dims are {', '.join(map(repr, list(names)[:20]))}" if names else ""
    return f"the inputs are {', '.join(map(repr, list(work.dims)[:20]))}{dims}"


def _text(dims: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, dims))}]"
