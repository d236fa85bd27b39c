"""Loads for the kernel behind, in a kernel's last tile.

Where other tiles step to the next one, the last one has no step to take: its places for that lead
to loads for the kernel behind, one at a time, when the kernel's own moves are over. What they are
is known when the kernel behind is lowered: until then each has a remark in its place, which is
found by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.early import Interval, meet
from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.streams import IDLE, Agenda
from tilewright.targets.cambricon.lowering.tidy import Tidied
from tilewright.targets.cambricon.lowering.turning import NOWHERE, Turning
from tilewright.targets.cambricon.statements import Statement, statement

MOST = 6
"""Loads that a kernel has room for: an image in four runs, a residual and a bias."""


@dataclass(frozen=True)
class Transfer:
    """One load of which all is known."""

    text: str
    chip: int
    """Address in the scratchpad."""
    elements: int
    element: int
    """Bytes of one."""
    main: int
    """Address in main memory."""

    @property
    def filled(self) -> Interval:
        """The bytes that it fills."""
        return self.chip, self.chip + self.elements * self.element

    @property
    def read(self) -> Interval:
        """The bytes of main memory that it reads."""
        return self.main, self.main + self.elements * self.element

    def statements(self, registers: Sequence[Register]) -> list[Statement]:
        """The load, by three registers that are free."""
        at, count, zero = registers
        return [
            statement("SMOVE", zero, 0, remark="first tile of the kernel that follows"),
            statement("SMOVE", at, self.chip),
            statement("SMOVE", count, self.elements),
            statement(self.text, at, count, zero, self.main),
        ]

    def emit(self, e: Emitter) -> None:
        """The load where it stands."""
        e.remark("the rest of the first tile")
        at, count, zero = e.loaded(self.chip), e.loaded(self.elements), e.loaded(0)
        e.emit(self.text, at, count, zero, self.main)


@dataclass(frozen=True)
class Mark:
    """A remark, and the registers that statements in its place may overwrite."""

    place: Statement
    registers: tuple[Register, ...]


@dataclass(frozen=True)
class Opening:
    """A kernel's last tile as a place for loads."""

    count: Mark
    """Where one more than their number is set, in its only register."""
    loads: tuple[Mark, ...]
    """Where they stand; the last one first."""
    free: tuple[Interval, ...] = ()
    """Bytes of the vector scratchpad that the kernel does not use any more."""
    unstored: tuple[Interval, ...] = ()
    """Bytes of main memory that it has not stored yet."""
    cycles: float = 0.0
    """How long loads may take."""

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All of them."""
        return self.count, *self.loads

    def takes(self, load: Transfer) -> bool:
        """Whether a load fills what is free and reads what has been stored."""
        start, end = load.filled
        fits = any(low <= start and end <= high for low, high in self.free)
        return fits and not any(meet(load.read, other) for other in self.unstored)

    def tidied(self, tidy: Tidied) -> tuple[Opening, list[Statement]]:
        """With the registers that its remarks' places overwrite in the end, in these statements:
        no loads come, as yet."""
        count, *loads = (
            replace(mark, registers=tuple(tidy.clobbers[id(mark.place)])) for mark in self.marks
        )
        none = statement("SMOVE", *count.registers, 1)
        code = [none if line is count.place else line for line in tidy.statements]
        return replace(self, count=replace(count, place=none), loads=tuple(loads)), code

    def holding(self, loads: Sequence[Transfer]) -> dict[int, list[Statement]]:
        """Statements by the identities of the remarks in whose place they stand."""
        (ended,) = self.count.registers
        statements = {id(self.count.place): [statement("SMOVE", ended, len(loads) + 1)]}
        for mark, load in zip(self.loads, reversed(loads), strict=False):
            statements[id(mark.place)] = load.statements(mark.registers)
        return statements if loads else {}


class LastTile:
    """Such loads, which places for the step to the next tile lead to when there is none.

    ``ended`` is one more than the loads that have not come.
    """

    def __init__(self, turning: Turning, agenda: Agenda, ended: Register, pause: int) -> None:
        """Other moves go on ``pause`` cycles behind a load."""
        self.turning, self.agenda, self.ended, self.pause = turning, agenda, ended, pause
        e = self.e = turning.e
        self.count: Mark | None = None
        self.loads: list[Mark] = []
        self.others, self.lead = e.label("others"), e.label("lead")
        e.apart(self._shared)

    @property
    def opening(self) -> Opening:
        """The place, when all has been emitted."""
        assert self.count is not None
        return Opening(self.count, tuple(self.loads))

    def step(self) -> None:
        """In front of the step to the next tile: there is none in the last one."""
        self.e.emit("CB", self.ended, self.others)

    def start(self) -> None:
        """Behind the last step: the number of loads is known here."""
        self.count = Mark(self.e.mark("room for the number of first loads"), (self.ended,))
        self.e.jump(self.lead)

    def _shared(self) -> None:
        """The next load, if it is time for it, and the way back."""
        e, due, gate = self.e, self.turning.due, self.agenda.gate
        assert due is not None
        free = e.label("free")
        labels = [e.label("load") for _ in range(MOST)]
        e.place(self.others)
        with e.beside(), e.scope():
            # Behind all products all that is left comes at once; before that, other moves go first.
            # Numbers are immediates: in registers they would be those of the tile's code.
            early = e.multiply(gate, -1)
            e.if_positive(e.add(e.multiply(due, -1), NOWHERE + 1), free)
            e.if_positive(e.add(early, IDLE // 2), free)
            e.if_positive(early, self.lead)
            e.place(free)
            e.emit("SSUB", self.ended, self.ended, 1)
            for number in range(MOST - 1, 0, -1):
                e.if_positive(e.add(self.ended, -number), labels[number])
            loaded = e.label("loaded")
            for label in labels:
                e.place(label)
                with e.scope():
                    registers = tuple(e.register() for _ in range(3))
                    self.loads.append(Mark(e.mark("room for a first load"), registers))
                e.jump(loaded)
            e.place(loaded)
            self.agenda.begin(self.pause)
            e.place(self.lead)
            origin = e.variable(due)
            e.emit("SADD", due, self.ended, -1)
            for number, place in enumerate(self.turning.places, 1):
                e.if_positive(e.add(origin, number + 1), place)
        e.jump(self.turning.once_more)
