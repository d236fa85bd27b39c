"""The kernels of a chain, what computes each, and the buffers that lie between them.

What a kernel of a chain hands on waits to be read at *home*: in the memory that both primitives
use, or in the first one on the way between theirs. Where operands pass a memory on their way
(``Machine.path``), there is a buffer in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.errors import refuse
from tilewright.machine import Machine, Memory, Move, Primitive
from tilewright.planning.domain import Affine, Kernel, Operand
from tilewright.planning.links import links_of, renamed_axes


@dataclass(frozen=True)
class Unit:
    """One kernel of a chain, and what computes it."""

    kernel: Kernel
    """Without its producers."""
    primitive: Primitive
    names: Mapping[str, str]
    """The chain's names of the kernel's dims."""
    bound: Mapping[str, Affine]
    """By these, the expressions to which a domain binds dims, over the consumer's."""

    def granule(self, name: str) -> int:
        """Granule of the kernel's dim that the chain calls ``name``; 1 if there is none."""
        dims = [dim for dim in self.kernel.anchor.extents if self.names.get(dim, dim) == name]
        return max((self.primitive.multiples.get(dim, 1) for dim in dims), default=1)

    @cached_property
    def axes(self) -> dict[str, tuple[Affine, ...]]:
        """The operands' access maps, by the chain's names."""
        return {o.name: renamed_axes(o.access, self.names) for o in self.kernel.operands}


def units_of(kernel: Kernel, machine: Machine, primitives: Sequence[Primitive]) -> tuple[Unit, ...]:
    """The kernels of a chain, producers first, the last one last; refuses chains that a machine has
    no place for."""
    units = tuple(_units(kernel, iter(primitives), {}, {}, 0))
    for unit in units:
        for operand in unit.kernel.operands:
            if operand.role not in unit.primitive.operands:
                reason = f"{unit.primitive.name} of {machine.name} takes no {operand.role}"
                raise refuse("plan-operand", f"{reason} ({operand.name})", kernel.symbol)
        if unit.primitive.sizes == "fixed":
            raise refuse(
                "kernel-chain",
                f"instances of {unit.primitive.name} have fixed sizes, and tiles of a chain differ "
                "at the edges",
                kernel.symbol,
            )
    return units


def _units(
    kernel: Kernel,
    primitives: Iterator[Primitive],
    names: Mapping[str, str],
    bound: Mapping[str, Affine],
    count: int,
) -> Iterable[Unit]:
    for link in links_of(kernel, count):
        inner = {dim: names.get(name, name) for dim, name in link.names.items()}
        axes = dict(zip(link.bound, renamed_axes(tuple(link.bound.values()), names), strict=True))
        yield from _units(link.producer, primitives, inner, axes, link.number)
    yield Unit(kernel.alone, next(primitives), names, bound)


@dataclass(frozen=True)
class Place:
    """A buffer of a chain, whatever its tile."""

    operand: Operand
    """As the kernel in whose loops the buffer stands accesses it."""
    unit: int
    """That kernel."""
    memory: Memory
    fill: Move | None = None
    """The move that fills it; None where a primitive does, or moves from another buffer do."""
    drain: Move | None = None
    """The move that empties it, for results."""
    source: int | None = None
    """The buffer from which it is filled; None for main memory."""
    target: int | None = None
    """The buffer to which it is emptied; None for main memory."""
    staged: bool = False
    """Whether parts of it are moved on to the primitive's memory."""
    host: str = ""
    """The operand in whose move this one travels."""
    granules: tuple[int, ...] = ()
    """To which its box is rounded along each axis."""
    made_by: int | None = None
    """The kernel whose primitive writes it."""

    @property
    def name(self) -> str:
        """The operand's name."""
        return self.operand.name


@dataclass
class Places:
    """The buffers of a chain, and which of them its kernels read and write."""

    units: tuple[Unit, ...]
    machine: Machine

    def __post_init__(self) -> None:
        self.all: list[Place] = []
        self.depths: dict[object, dict[int, int]] = {}
        """By the orders of loops, within how many of them each kernel computes."""
        self.levels: dict[object, dict[int, tuple[int, int]]] = {}
        """By the orders of loops, within how many of them each buffer stands."""
        self.around: dict[object, tuple[frozenset[str], ...]] = {}
        """By the orders of loops, those around each buffer's moves and each kernel's computes."""
        self.homes: dict[str, int] = {}
        """By name, where results of producers wait to be read."""
        self.reads: list[list[int]] = [[] for _ in self.units]
        """Per kernel, the buffers that its primitive reads."""
        self.makes: list[int | None] = [None for _ in self.units]
        """Per kernel, the buffer that its primitive writes; None for one in main memory."""
        self.readers: dict[str, int] = {}
        """By name, the kernel that reads a producer's result."""
        for number, unit in enumerate(self.units):
            for operand in unit.kernel.inputs:
                self.readers[operand.name] = number
        for number in range(len(self.units)):
            self._homes(number)
        for number in range(len(self.units)):
            self._inputs(number)
            self._output(number)

    @property
    def is_deep(self) -> bool:
        """Whether an operand passes a memory on its way."""
        return any(place.staged for place in self.all)

    def _add(self, place: Place) -> int:
        self.all.append(place)
        return len(self.all) - 1

    def _memory(self, unit: Unit, name: str) -> Memory:
        return self.machine.memory_beside(unit.primitive, name)

    def _homes(self, reader: int) -> None:
        unit = self.units[reader]
        makers = {one.kernel.output.name: (n, one) for n, one in enumerate(self.units[:-1])}
        for operand in unit.kernel.anchor.inputs:
            if operand.name not in makers:
                continue
            number, maker = makers[operand.name]
            written = maker.primitive.operands["output"]
            read = unit.primitive.operands[operand.role]
            path = self._path(written.memory, read.memory, operand)
            home = path[0].target if path else written.memory
            granules = [1] * len(operand.access)
            if home == read.memory:
                granules = [axis.granule(read.multiples) for axis in operand.access]
            if home == written.memory:
                axes = zip(granules, maker.kernel.output.access, strict=True)
                granules = [max(granule, axis.granule(written.multiples)) for granule, axis in axes]
            self.homes[operand.name] = self._add(
                Place(
                    operand,
                    reader,
                    self._memory(unit, home),
                    staged=home != read.memory,
                    granules=tuple(granules),
                    made_by=number if home == written.memory else None,
                )
            )

    def _path(self, source: str, target: str, operand: Operand) -> tuple[Move, ...]:
        try:
            path = self.machine.path(source, target)
        except KeyError:
            path = None
        if path is None or self.machine.main in {move.target for move in path}:
            raise refuse(
                "kernel-chain",
                f"{operand.name} is made in {source} and read in {target}, and no moves on the "
                "chip lead from one to the other",
                operand.name,
            )
        return path

    def _inputs(self, number: int) -> None:
        unit = self.units[number]
        hosts = {o.role: o.name for o in reversed(unit.kernel.inputs)}
        for operand in dict.fromkeys(unit.kernel.inputs):
            storage = unit.primitive.operands[operand.role]
            source = self.homes.get(operand.name)
            outer = self.machine.main if source is None else self.all[source].memory.name
            host = hosts.get(storage.joined, "") if storage.joined else ""
            path = self.machine.path(outer, storage.memory)
            for hop in path:
                last = hop is path[-1]
                granules = [axis.granule(storage.multiples) for axis in operand.access]
                source = self._add(
                    Place(
                        operand,
                        number,
                        self._memory(unit, hop.target),
                        fill=hop,
                        source=source,
                        staged=not last,
                        host=host,
                        granules=tuple(granules if last else [1] * len(granules)),
                    )
                )
            if source is not None:
                self.reads[number].append(source)

    def _output(self, number: int) -> None:
        unit = self.units[number]
        operand, storage = unit.kernel.output, unit.primitive.operands["output"]
        home = self.homes.get(operand.name)
        outer = self.machine.main if home is None else self.all[home].memory.name
        target = home
        for hop in reversed(self.machine.path(storage.memory, outer)):
            last = hop.source == storage.memory
            granules = [axis.granule(storage.multiples) for axis in operand.access]
            target = self._add(
                Place(
                    operand,
                    number,
                    self._memory(unit, hop.source),
                    drain=hop,
                    target=target,
                    granules=tuple(granules if last else [1] * len(granules)),
                    made_by=number if last else None,
                )
            )
        self.makes[number] = target
