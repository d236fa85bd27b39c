"""Kernels of a DaVinci core before they are C: loops, commands of pipes, flags and barriers.

A program is small and static; ``trace`` runs its loops and gives every command with its numbers,
which is what the proof (proof.py) and the pass that puts flags in (flags.py) look at. emit.py
prints it as CCE C. Addresses and lengths are values: numbers, or expressions of loop variables and
of the one size that a kernel may take when it is launched (``LENGTH``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from tilewright.codegen.nest.value import Expr, Value, of, variable

LENGTH = variable("length")
"""The size that a kernel with a ``Program.longest`` takes as its last parameter."""


def at_length(value: Value, length: int) -> int:
    """The number that a value has at a ``length``, if it depends on ``LENGTH`` alone."""
    return int(eval(of(value).python, {LENGTH.python: length}))


BLOCK_INDEX = variable("block_idx")
"""The index of this block of a launch; a core runs one at a time (``Program.blocks``)."""


def element_at(tensor: Tensor, index: Value) -> Expr:
    """An integer of a tensor that the scalar unit reads. What it is nobody knows before the kernel
    runs: ``trace`` takes 0, and ``check_look_ups`` holds what may depend on it."""
    return Expr(f"{tensor.name}[{of(index).text}]", UNKNOWN)


UNKNOWN = "int()"
"""The Python text in place of a number from main memory."""


@dataclass(eq=False)
class Buffer:
    """Bytes of a memory on the chip, in several slots, that a loop's iterations use in turn."""

    name: str
    memory: str
    address: int
    bytes: int
    slots: int = 1
    slot: Value = 0
    """The slot that an iteration uses."""
    scope: Loop | None = None
    """The loop of whose iterations each has contents of its own; None for the whole program."""
    element: str = "half"

    @property
    def base(self) -> Value:
        """The address of the iteration's slot."""
        return self.address + self.slot * self.bytes


@dataclass(eq=False)
class Tensor:
    """A parameter of the kernel: main memory."""

    name: str
    bytes: int
    element: str = "half"
    written: bool = False
    memory = "gm"
    base: Value = 0


@dataclass(frozen=True)
class Place:
    """An address: bytes from the start of a buffer's slot or a tensor."""

    home: Buffer | Tensor
    offset: Value = 0
    element: str = ""
    """The element type of the pointer; "" for the home's."""

    def at(self, offset: Value) -> Place:
        """The place ``offset`` bytes further on."""
        return Place(self.home, offset + self.offset, self.element)

    @property
    def memory(self) -> str:
        """The name of the memory of its home."""
        return self.home.memory

    @property
    def address(self) -> Value:
        """Bytes from the start of the memory, or of the tensor."""
        return self.home.base + self.offset


class Region(NamedTuple):
    """A region that a command reads or writes: runs of ``bytes``, ``counts`` by ``strides``
    apart."""

    place: Place
    bytes: Value
    counts: tuple[Value, ...] = ()
    strides: tuple[Value, ...] = ()


@dataclass(eq=False)
class Command:
    """An instruction: what it is called with, and what it touches."""

    name: str
    pipe: str
    """``S`` for scalar settings, which the pipes' later commands take with them."""
    arguments: tuple[Any, ...]
    """Values, places, and texts that stand as they are."""
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    spaced: Expr | None = None
    """The condition under which a command of the same pipe that wrote the same needs no barrier
    before."""
    cycles: Value = 0
    """The cycles of the cube or the vector unit; moves take what their bytes do."""


SCALAR, COUNTER, COUNT = "scalar", "counter", "count"
"""Commands of the scalar unit that give a name a value: for good, at first, and anew."""

ASSIGNMENTS = {SCALAR: "const int64_t ", COUNTER: "int64_t ", COUNT: ""}
"""The C before ``name = value;``, by the kind of variable."""


def scalar(name: str, value: Value, cycles: int = 0) -> Command:
    """A name for a value, within the body that it stands in; ``cycles`` hold the scalar unit up."""
    return Command(SCALAR, "S", (name, value), cycles=cycles)


def counter(name: str) -> tuple[Command, Command]:
    """A variable that begins at 0, and the command that adds 1 to it."""
    more = Command(COUNT, "S", (name, variable(name) + 1))
    return Command(COUNTER, "S", (name, 0)), more


@dataclass(eq=False)
class Flag:
    """``set_flag`` (on the source's queue) or ``wait_flag`` (on the target's)."""

    kind: str
    source: str
    target: str
    event: Value


@dataclass(eq=False)
class Barrier:
    """A barrier within a pipe (``pipe_barrier``)."""

    pipe: str


@dataclass(eq=False)
class Loop:
    """``for (name = 0; name < count; name++)``; the body's buffers advance with it."""

    name: str
    count: Value
    body: list[Statement] = field(default_factory=list["Statement"])

    @property
    def variable(self) -> Value:
        """The loop's variable; 0 where it runs once, and is left out."""
        return 0 if self.count == 1 else variable(self.name)


Statement = Command | Flag | Barrier | Loop


@dataclass
class Program:
    """A kernel: its parameters and its statements."""

    name: str
    tensors: tuple[Tensor, ...]
    body: list[Statement]
    buffers: tuple[Buffer, ...] = ()
    about: str = ""
    longest: int = 0
    """The most that ``LENGTH`` may be, which is 1 or more; 0 for a kernel that takes none."""
    blocks: int = 1
    """The number of blocks of a launch, each with memories and flags of its own, in any order."""
    constants: tuple[tuple[str, Value], ...] = ()
    """Names of values that are the same in all of a block, in order: its place in the grid."""


def block_places(places: Sequence[tuple[str, int]]) -> tuple[tuple[tuple[str, Value], ...], int]:
    """A block's place along each axis of a grid, outermost first, and how many blocks there are."""
    constants: list[tuple[str, Value]] = []
    blocks = 1
    for number, (name, count) in reversed(list(enumerate(places))):
        place: Value = BLOCK_INDEX // blocks
        constants.append((name, place % count if number else place))
        blocks *= count
    return tuple(reversed(constants)), blocks


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, those of loops within included."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body)


class Access(NamedTuple):
    """Bytes that one execution touches."""

    home: str
    """The memory, or ``gm`` and the tensor."""
    start: int
    bytes: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The address after its last byte."""
        pairs = zip(self.counts, self.strides, strict=True)
        return self.start + self.bytes + sum((count - 1) * stride for count, stride in pairs)


class Executed(NamedTuple):
    """One execution of a command, flag or barrier."""

    statement: Command | Flag | Barrier
    event: int
    spaced: bool
    cycles: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]


def trace(
    program: Program,
    trips: int | None = None,
    length: int | None = None,
    block: int = 0,
) -> list[Executed]:
    """Every execution of a block, in the order in which the scalar unit issues them; with
    ``trips``, those of at most ``trips`` iterations of each loop. ``length`` is the kernel's
    parameter, if not the longest."""
    return Tracer(program, trips).run(length, block)


class Tracer:
    """``trace`` of one program, for several lengths and blocks: its text is compiled once."""

    def __init__(self, program: Program, trips: int | None = None) -> None:
        self.program, self.trips = program, trips
        self._lines = ["def run(step, take):", "    pass"]
        self._known: list[Command | Flag | Barrier] = []
        self._fixed: list[Executed | None] = []
        for name, value in program.constants:
            self._lines.append(f"    {variable(name).python} = {of(value).python}")
        self._write(program.body, 1)
        self._code = compile("\n".join(self._lines), program.name, "exec")

    def _write(self, body: Sequence[Statement], depth: int) -> None:
        lines, space = self._lines, "    " * depth
        for statement in body:
            if isinstance(statement, Loop):
                count = of(statement.count).python
                count = count if self.trips is None else f"min({count}, {self.trips})"
                name = variable(statement.name).python
                lines.append(f"{space}for {name} in range({count}):")
                lines.append(f"{space}    pass")
                self._write(statement.body, depth + 1)
            else:
                if isinstance(statement, Command) and statement.name in ASSIGNMENTS:
                    name, value = statement.arguments
                    lines.append(f"{space}{variable(name).python} = {of(value).python}")
                number = len(self._known)
                self._known.append(statement)
                self._fixed.append(_fixed(statement))
                if self._fixed[-1] is None:
                    lines.append(f"{space}step({number}, {_numbers(statement)})")
                else:
                    lines.append(f"{space}take(known[{number}])")

    def run(self, length: int | None = None, block: int = 0) -> list[Executed]:
        """The executions of one block at one length; see ``trace``."""
        scope: dict[str, Any] = {"access": Access, "known": self._fixed, BLOCK_INDEX.python: block}
        scope[LENGTH.python] = self.program.longest if length is None else length
        exec(self._code, scope)
        executions: list[Executed] = []
        known, take = self._known, executions.append

        def step(
            number: int, event: int, spaced: bool, cycles: int, reads: Any, writes: Any
        ) -> None:
            take(Executed(known[number], event, spaced, cycles, reads, writes))

        scope["run"](step, take)
        return executions


@lru_cache(maxsize=1 << 12)
def _fixed(statement: Command | Flag | Barrier) -> Executed | None:
    """The execution of a statement that is the same in all iterations; None for others. It is
    remembered: a program is traced with other flags again and again."""
    if isinstance(statement, Flag):
        event = statement.event
        return Executed(statement, event, False, 0, (), ()) if isinstance(event, int) else None
    if isinstance(statement, Barrier):
        return Executed(statement, 0, False, 0, (), ())
    reads, writes = (
        [_fixed_access(access) for access in part] for part in (statement.reads, statement.writes)
    )
    cycles = statement.cycles
    if statement.spaced is not None or isinstance(cycles, Expr) or None in (*reads, *writes):
        return None
    accesses = [tuple(access for access in part if access is not None) for part in (reads, writes)]
    return Executed(statement, 0, False, cycles, accesses[0], accesses[1])


def _fixed_access(region: Region) -> Access | None:
    address, size = region.place.address, region.bytes
    if isinstance(address, Expr) or isinstance(size, Expr):
        return None
    counts = tuple(value for value in region.counts if isinstance(value, int))
    strides = tuple(value for value in region.strides if isinstance(value, int))
    if len(counts) < len(region.counts) or len(strides) < len(region.strides):
        return None
    return Access(_home(region.place), address, size, counts, strides)


@lru_cache(maxsize=1 << 12)
def _numbers(statement: Command | Flag | Barrier) -> str:
    """The arguments of a step, in Python; remembered as ``_fixed`` is."""
    if isinstance(statement, Flag):
        return f"{of(statement.event).python}, False, 0, (), ()"
    if isinstance(statement, Barrier):
        return "0, False, 0, (), ()"
    spaced = "False" if statement.spaced is None else statement.spaced.python
    cycles = of(statement.cycles).python
    return f"0, {spaced}, {cycles}, {_regions(statement.reads)}, {_regions(statement.writes)}"


def _regions(regions: Sequence[Region]) -> str:
    def listed(values: Sequence[Value]) -> str:
        return "(" + "".join(f"{of(value).python}, " for value in values) + ")"

    parts = [
        f"access({_home(region.place)!r}, {of(region.place.address).python}, "
        f"{of(region.bytes).python}, {listed(region.counts)}, {listed(region.strides)}), "
        for region in regions
    ]
    return f"({''.join(parts)})"


def _home(place: Place) -> str:
    home = place.home
    return f"gm {home.name}" if isinstance(home, Tensor) else home.memory
