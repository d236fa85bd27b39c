"""Domains: the affine iteration spaces of a kernel's stages.

A stage is one operation of the network seen as a loop nest: named dims, and for each operand one
affine expression per axis that says which element an iteration touches. Everything that planning
and the tile level know of an operation (footprints, halos, reuse, traffic) is read off here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

from tilewright.numerics.element_types import ElementType, size_of

Interval = tuple[int, int]
"""Start and size of a run of indices; the size is at least 0."""

Role = Literal["input", "weight", "bias", "residual", "scratch", "internal", "output"]
"""The role of an operand in its kernel; a residual is the second input of a later stage, an
internal operand one that a producer makes.

Scratch is memory that the kernel may write and read, and whose content no other kernel reads.
"""


_TERM = re.compile(
    r"\s*([+-]?)\s*(?:(\d+)\s*(?:\*\s*([A-Za-z_]\w*))?|([A-Za-z_]\w*)(?:\s*\*\s*(\d+))?)"
)


@dataclass(frozen=True)
class Affine:
    """An affine expression: the sum of ``coefficient * dim`` over ``terms``, plus ``offset``."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @classmethod
    def parse(cls, text: str) -> Affine:
        """Read what ``str`` prints, such as ``oh*2 + kh - 3``; raises ValueError."""
        position, terms, offset = 0, list[tuple[str, int]](), 0
        text = text.strip()
        while position < len(text):
            match = _TERM.match(text, position)
            if match is None or (position and not match.group(1)):
                raise ValueError(f"not an affine expression: {text!r}")
            sign = -1 if match.group(1) == "-" else 1
            number, name, lone, factor = match.group(2, 3, 4, 5)
            if name or lone:
                terms.append((name or lone, sign * int(number or factor or 1)))
            else:
                offset += sign * int(number)
            position = match.end()
        if not text:
            raise ValueError("an affine expression is missing")
        return cls(tuple(terms), offset)

    def __str__(self) -> str:
        signs = {True: "-", False: ""}
        parts = [
            signs[c < 0] + (name if abs(c) == 1 else f"{name}*{abs(c)}") for name, c in self.terms
        ]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts).replace("+ -", "- ")

    def granule(
        self,
        multiples: Mapping[str, int],
        apart: Collection[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> int:
        """The largest of its dims' granules (dim -> granule), times the dim's step; 1 if none.

        Where windows along it lie ``apart`` (``OperandRecord.windows_apart``), a granule is one of
        windows, whatever their step. ``names`` has what ``multiples`` and ``apart`` call a dim,
        where that is not its own name.
        """
        known = names or {}
        terms = [(known.get(dim, dim), abs(step)) for dim, step in self.terms]
        windows = any(dim in apart for dim, _ in terms)
        granules = [multiples.get(dim, 0) * (1 if windows else step) for dim, step in terms]
        return max(granules, default=0) or 1

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The names of the dims that the expression depends on."""
        return tuple(name for name, _ in self.terms)

    @cached_property
    def lone(self) -> str | None:
        """The dim that equals the expression; None if there is a factor, an offset or another
        dim."""
        terms = [(name, c) for name, c in self.terms if c]
        return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 and not self.offset else None

    def span(self, sizes: Mapping[str, Any]) -> Any:
        """From the first to the last value that a tile of these sizes takes, both counted; numbers,
        or columns of them. Dims that ``sizes`` does not name have one index."""
        return sum((abs(c) * (sizes.get(dim, 1) - 1) for dim, c in self.terms), start=1)

    def interval(self, dims: Mapping[str, Interval]) -> Interval:
        """Start and size of the values taken while each dim runs through its interval.

        Dims that ``dims`` does not name count as 0. With a negative coefficient the dim's last
        index gives the start.
        """
        start, last = self.offset, self.offset
        for name, c in self.terms:
            first, size = dims.get(name, (0, 1))
            if size <= 0:
                return (start, 0)
            low, high = c * first, c * (first + size - 1)
            start, last = start + min(low, high), last + max(low, high)
        return (start, last - start + 1)

    def interval_columns(self, interval_of: Callable[[str], tuple[Any, Any]]) -> tuple[Any, Any]:
        """``interval`` of many intervals at once: ``interval_of`` gives columns of start and size.

        Sizes are at least 1. An expression without dims gives numbers in place of columns.
        """
        start: Any = self.offset
        size: Any = 1
        for name, c in self.terms:
            first, extent = interval_of(name)
            start = start + c * (first if c > 0 else first + extent - 1)
            size = size + abs(c) * (extent - 1)
        return start, size


def substitute(expression: Affine, meaning: Mapping[str, Affine]) -> Affine:
    """The expression with dims replaced by expressions; dims without a meaning stay."""
    terms: dict[str, int] = {}
    offset = expression.offset
    for name, coefficient in expression.terms:
        inner = meaning.get(name, Affine(((name, 1),)))
        offset += coefficient * inner.offset
        for dim, factor in inner.terms:
            terms[dim] = terms.get(dim, 0) + coefficient * factor
    return Affine(tuple((dim, factor) for dim, factor in terms.items() if factor), offset)


@dataclass(frozen=True)
class Dim:
    """One named dim of a stage: its extent, and whether iterations along it reduce."""

    name: str
    extent: int
    kind: Literal["parallel", "reduction"] = "parallel"


@dataclass(frozen=True)
class Operand:
    """A tensor that a stage reads or writes.

    ``access[a]`` says which index of axis ``a`` (of the logical ``shape``) an iteration touches;
    indices outside ``[0, shape[a])`` are padding and hold no data. ``name`` is unique in the
    kernel; an operand that an earlier stage of the kernel writes stays in on-chip buffers.
    """

    name: str
    shape: tuple[int, ...]
    access: tuple[Affine, ...]
    element: ElementType = "float32"
    role: Role = "input"
    fraction: int = 0
    """Binary point of a fixed-point element: value = integer / 2**fraction."""
    layout: str = ""
    """Layout of the tensor in main memory (layout.py); "" is row-major logical order."""
    strides: tuple[int, ...] = ()
    """The strides of the layout's axes in main memory, in elements, where the tensor is a part of a
    larger one; () where it is dense."""
    computed: bool = False
    """True if it is a weight that the network computes: no compiler lays it out."""
    constant: bool | None = None
    """True if it is one of the network's constants, False if not; None where that follows from the
    role (``is_constant``)."""
    resident_in: str = ""
    """Memory on the chip that holds the tensor for the kernels around this one, too: it is moved
    nowhere. "" is main memory."""
    image: Operand | None = None
    """The tensor whose windows the operand holds, an axis for each dim (space/windows.py); None
    where it is the tensor itself."""

    @cached_property
    def dims(self) -> frozenset[str]:
        """The dims on which the operand's address depends."""
        return frozenset(name for axis in self.access for name in axis.dims)

    @property
    def is_constant(self) -> bool:
        """True if it is one of the network's constants, which a machine may hold in a memory of
        their own (``Machine.home``): weights and biases are, if nothing else is said."""
        by_role = self.role in ("weight", "bias") and not self.computed
        return by_role if self.constant is None else self.constant

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return size_of(self.element)

    @property
    def bytes(self) -> int:
        """Bytes of the tensor, without padding of its layout."""
        return size_of(self.element, prod(self.shape))


Value = int | float | str | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True)
class Stage:
    """One operation of a kernel as an affine loop nest.

    ``operation`` is the name of the graph operation without its dialect (``conv``, ``relu``);
    ``attributes`` carry what its meaning needs beyond the access maps (slopes, epsilon, ...).
    """

    operation: str
    dims: tuple[Dim, ...]
    inputs: tuple[Operand, ...]
    output: Operand
    attributes: tuple[tuple[str, Value], ...] = ()
    node: str = ""
    """Name of the model's node that the stage comes from."""

    def attribute(self, name: str, default: Value = 0) -> Value:
        """The value of one attribute, or ``default``."""
        return dict(self.attributes).get(name, default)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extent of each dim by name."""
        return {dim.name: dim.extent for dim in self.dims}

    @property
    def reduction(self) -> tuple[str, ...]:
        """Names of the reduction dims."""
        return tuple(dim.name for dim in self.dims if dim.kind == "reduction")

    @property
    def iterations(self) -> int:
        """Number of iterations: the product of the extents."""
        count = 1
        for dim in self.dims:
            count *= dim.extent
        return count


@dataclass(frozen=True)
class Kernel:
    """A chain of stages planned and run as one; they share the tile loops.

    The first stage is the **anchor**: the tile loops run over its dims. Later stages are maps over
    dims of the same names, or reduce windows that lie within a tile (space/pooling.py). ``symbol``
    is a C identifier, unique in the network.
    """

    symbol: str
    stages: tuple[Stage, ...]
    nodes: tuple[str, ...] = field(default=())
    """Names of the model's nodes, in order."""
    first: bool = False
    """True if it begins a network: no kernel before it can load its weights."""
    producers: tuple[Kernel, ...] = ()
    """Kernels of which this one reads the results on the chip: each tile of this kernel computes
    first what it reads of them (chains/links.py). A producer's output is an input of the first
    stage."""

    @property
    def anchor(self) -> Stage:
        """The stage whose dims the tile loops run over."""
        return self.stages[0]

    @property
    def output(self) -> Operand:
        """The operand that the last stage writes to main memory."""
        return self.stages[-1].output

    @cached_property
    def internal(self) -> frozenset[str]:
        """Names of the operands that one stage writes and a later one reads, or a producer
        writes."""
        results = [stage.output.name for stage in self.stages[:-1]]
        return frozenset([*results, *(producer.output.name for producer in self.producers)])

    @cached_property
    def inputs(self) -> tuple[Operand, ...]:
        """Operands read from main memory, in order of first use, each once."""
        inputs: dict[str, Operand] = {}
        for producer in self.producers:
            for operand in producer.inputs:
                inputs.setdefault(operand.name, operand)
        for stage in self.stages:
            for operand in stage.inputs:
                if operand.name not in self.internal:
                    inputs.setdefault(operand.name, operand)
        return tuple(inputs.values())

    @cached_property
    def produced(self) -> tuple[Operand, ...]:
        """The results of the producers, and of theirs."""
        return tuple(
            o for producer in self.producers for o in (producer.output, *producer.produced)
        )

    @cached_property
    def alone(self) -> Kernel:
        """The kernel as if its producers' results lay in main memory; itself without producers."""
        return replace(self, producers=()) if self.producers else self

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands in main memory: the inputs, then the output."""
        return (*self.inputs, self.output)


def with_operands(kernel: Kernel, change: Callable[[Operand], Operand]) -> Kernel:
    """The kernel with every operand of its stages, and of its producers', replaced."""
    stages = tuple(
        replace(
            stage,
            inputs=tuple(change(read) for read in stage.inputs),
            output=change(stage.output),
        )
        for stage in kernel.stages
    )
    producers = tuple(with_operands(producer, change) for producer in kernel.producers)
    return replace(kernel, stages=stages, producers=producers)
