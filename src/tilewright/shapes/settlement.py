"""Sizes of a model's dims: what the model leaves open is settled by what the caller asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.errors import Problem, TilewrightError
from tilewright.shapes.forms import Bounds, Shapes, Size, Wish, parse_shape, parse_size

Dims = tuple[int | str, ...]
"""Sizes, and names of free dims."""


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


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model, before its shapes are settled."""

    inputs: tuple[TensorDims, ...]
    outputs: tuple[TensorDims, ...] = ()

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

    def bind(self, sizes: Mapping[str, int]) -> dict[str, Dims]:
        """The inputs' shapes once free dims have sizes."""
        return {
            name: tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
            for name, dims in self.inputs.items()
        }

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
        for axis, (dim, wish) in enumerate(zip(stated, wishes, strict=True)):
            if isinstance(dim, str):
                self.take(dim, wish, where)
            elif wish.size not in (None, dim):
                reason = f"size {wish.size} is given for axis {axis}, which is {dim}"
                self.refuse("shape-fixed", reason, where)
            elif wish.name is not None or wish.bounds is not None:
                reason = f"axis {axis} cannot be free: the model fixes it to {dim}"
                self.refuse("shape-fixed", reason, where, "export the model with this axis dynamic")

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
        low, high = max(bounds.low, other.low), min(bounds.high, other.high)
        if low > high:
            self.refuse("shape-conflict", f"no size lies in both {bounds} and {other}", where)
            return bounds
        return Bounds(low, high)

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
    inputs: Sequence[TensorDims], shapes: Shapes | None, problems: list[Problem] | None = None
) -> Settled:
    """Settle the inputs' shapes by what the caller asks for.

    A key of ``shapes`` is an input's name, or else the name of a free dim. A size given for a dim
    holds wherever the model uses its name; a new name for it, too; and dims given one name have one
    size. Raises TilewrightError with every problem (``shape-form``, ``shape-bounds``,
    ``shape-rank``, ``shape-fixed``, ``shape-conflict``, ``shape-unknown``), or adds them to
    ``problems`` if that is given.
    """
    refusals: list[Problem] = []
    work = _Settling(inputs, refusals)
    later: list[tuple[str, Wish]] = []
    for key, value in (shapes or {}).items():
        try:
            if key in work.dims:
                work.take_shape(key, value)
            elif value is None or isinstance(value, int | str | Bounds):
                later.append((key, parse_size(value, f"dim {key!r}")))
            else:
                later.append((key, Wish()))  # A shape, of what is no input.
        except TilewrightError as error:
            refusals.extend(error.problems)
    for key, wish in later:
        dims = [dim for dim, known in work.known.items() if key in (dim, known.name)]
        if not dims or wish == Wish():
            known = "is no input" if dims else "is no input and no free dim"
            work.refuse("shape-unknown", f"{key[:200]!r} {known}", "shapes", _help(work))
        for dim in dims:
            work.take(dim, wish, f"dim {key!r}")
    settled = work.result()
    if problems is not None:
        problems.extend(refusals)
    elif refusals:
        raise TilewrightError(refusals)
    return settled


def _help(work: _Settling) -> str:
    names = {known.name or dim: None for dim, known in work.known.items()}
    dims = f"; the free dims are {', '.join(map(repr, list(names)[:20]))}" if names else ""
    return f"the inputs are {', '.join(map(repr, list(work.dims)[:20]))}{dims}"


def _text(dims: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, dims))}]"
