"""The simulator: words and main memory in; values, cycles and what happened out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.targets.cambricon.formats import REGISTERS, UNITS
from tilewright.targets.cambricon.isa import BY_OPCODE
from tilewright.targets.cambricon.machine import REFILL, lanes_of, queue_of
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.failures import failure
from tilewright.targets.cambricon.simulate.state import KERNEL, Array, Chip, State
from tilewright.targets.cambricon.simulate.words import take_apart

MOVES = ("vload", "vstore", "mload", "mstore", "load_table")
"""The machine's moves in the order of the state's numbers; scalar accesses follow them."""

LIMIT = 1 << 30
"""Instructions after which a program is said to run for ever."""

LOOP = 1000
"""Instructions that are watched to say where a program goes round."""

BUDGET = 1 << 22
"""Instructions that the compiled loop executes before Python looks (for interrupts)."""

SEED = 0x9E3779B97F4A7C15
"""Seed of the random numbers of RV."""

BLOCK = 128
"""Bytes to which memories are rounded in the array of the chip, whose mask has a bit for two."""

ROOM = 1024
"""Least number of elements on their way through a unit (elements.CHUNK)."""

FIRST_EVENTS, MAX_EVENTS = 4096, 1 << 23
MAX_RACES = 100
MAX_RECENT = 4096
"""Transfers between two barriers that the search for races keeps."""

Label = Callable[[int], str]
"""Function that names a word in messages, by a line of the source."""


@dataclass(frozen=True)
class Race:
    """Two instructions of two units touch a byte, one writes it, and no barrier orders them."""

    first: int
    """Number of the earlier one's word."""
    second: int
    memory: str
    address: int
    """Lowest byte that both touch."""


@dataclass(frozen=True)
class Result:
    """The results of a simulation, from the simulator's start on."""

    cycles: float
    """Cycle in which everything had completed."""
    instructions: int
    """The number of instructions that were executed."""
    counts: dict[str, int]
    """Instructions executed by mnemonic."""
    bytes: dict[str, int]
    """Bytes that each move, and ``scalar`` accesses, took through main memory."""
    busy: dict[str, float]
    """Cycles in which each unit worked (its latency included)."""
    kernel_start: NDArray[np.float64]
    """Cycle in which each kernel's first instruction of the queue started (infinite if it has
    none)."""
    kernel_end: NDArray[np.float64]
    kernel_bytes: NDArray[np.int64]
    kernel_busy: NDArray[np.float64]
    """[kernel, unit], units in the order of ``formats.UNITS``."""
    registers: NDArray[np.int64]
    vsm: NDArray[np.uint8]
    msm: NDArray[np.uint8]
    events: NDArray[np.int64]
    """[event, (word, unit, kernel, bytes)]; empty unless events were asked for."""
    times: NDArray[np.float64]
    """[event, (start, end)] in cycles."""
    races: tuple[Race, ...]
    """Found if they were asked for, at most ``MAX_RACES``."""
    races_complete: bool
    """True if there were no more races, and all were looked for."""

    @property
    def main_bytes(self) -> int:
        """Bytes through main memory."""
        return sum(self.bytes.values())


class Simulator:
    """A program on a machine of its own; state and time go on from run to run."""

    def __init__(
        self,
        words: Array,
        machine: Machine,
        main: NDArray[np.uint8],
        *,
        kernels: Array | None = None,
        events: bool = False,
        races: bool = False,
        seed: int = SEED,
        label: Label | None = None,
        values: bool = True,
    ) -> None:
        """``main`` is main memory and is written in place.

        Without ``values`` nothing but the time is computed: no byte of a memory changes, and reads
        of bytes that nothing has written are not found. ``kernels`` numbers the kernel of each
        word, for what is summed up by kernel. ``events`` keeps what the trace needs, ``races``
        looks for missing barriers. Raises TilewrightError (``isa-word``) for words that are no
        instructions.
        """
        if main.dtype != np.uint8 or main.ndim != 1 or not main.flags.c_contiguous:
            raise ValueError("main memory must be a contiguous array of bytes")
        self.machine = machine
        self.words = np.ascontiguousarray(words, np.uint64)
        self.program = take_apart(self.words, kernels)
        self.label = label
        count = int(self.program[:, KERNEL].max()) + 1 if len(self.words) else 1
        self.state = _state(machine, main, len(self.words), count, events, races, seed)
        self.state.n[at.TIME_ONLY] = not values

    def run(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        limit: int = LIMIT,
        budget: int = BUDGET,
    ) -> None:
        """Execute from word ``start`` until word ``end`` (the end of the program) is next.

        ``budget`` instructions are executed between looks at interrupts. Raises TilewrightError
        for what the program does wrong, and where.
        """
        from tilewright.targets.cambricon.simulate.loop import run  # compiled on first use

        s = self.state
        s.n[at.PC] = start
        stop = len(self.words) if end is None else end
        first = int(s.n[at.STEPS])
        with np.errstate(all="ignore"):
            while True:
                left = limit - (int(s.n[at.STEPS]) - first)
                status = run(self.program, s, stop, min(budget, left))
                if status == at.DONE:
                    return
                if status == at.FULL:
                    s = self._grow()
                elif status != at.MORE:
                    raise failure(status, self.words, s, self.label)
                elif left <= budget:
                    raise self._endless(stop, limit)

    def result(self) -> Result:
        """Return the results of the runs so far, after all instructions have completed."""
        from tilewright.targets.cambricon.simulate.queue import finish

        s = self.state
        n, t = s.n, s.t
        cycles = finish(n, t, s.kernels, s.events)
        counts = n[at.COUNTS : at.COUNTS + 256]
        moved = n[at.MOVED : at.MOVED + 6].tolist()
        events = s.events[: int(n[at.EVENTS])]
        memories = ("vsm", "msm", "tables", self.machine.main)
        races = s.races[: int(n[at.RACES])].tolist()
        busy = t[at.BUSY : at.BUSY + 5].tolist()
        vsm, msm = int(n[at.SIZES + at.VSM]), int(n[at.SIZES + at.MSM])
        return Result(
            cycles=float(cycles),
            instructions=int(n[at.STEPS]),
            counts={BY_OPCODE[i].mnemonic: int(counts[i]) for i in np.flatnonzero(counts).tolist()},
            bytes=dict(zip((*MOVES, "scalar"), moved, strict=True)),
            busy=dict(zip(UNITS, busy, strict=True)),
            kernel_start=s.kernels[:, at.KERNEL_START].copy(),
            kernel_end=s.kernels[:, at.KERNEL_END].copy(),
            kernel_bytes=s.kernels[:, at.KERNEL_BYTES].astype(np.int64),
            kernel_busy=s.kernels[:, at.KERNEL_BUSY :].copy(),
            registers=n[at.REGISTER : at.REGISTER + REGISTERS].copy(),
            vsm=s.chip.data[:vsm],
            msm=s.chip.data[n[at.BASES + at.MSM] :][:msm],
            events=events[:, : at.EVENT_START].astype(np.int64),
            times=events[:, at.EVENT_START :].copy(),
            races=tuple(Race(a, b, memories[m], byte) for a, b, m, byte in races),
            races_complete=not bool(n[at.LOST]) and len(races) < MAX_RACES,
        )

    def _grow(self) -> State:
        """Room for more events."""
        s = self.state
        size = len(s.events)
        if size >= MAX_EVENTS:
            raise refuse("simulate-events", f"more than {MAX_EVENTS} events", help="a shorter run")
        self.state = s._replace(events=np.concatenate([s.events, np.zeros_like(s.events)]))
        return self.state

    def _endless(self, stop: int, limit: int) -> Exception:
        """The refusal of a program that does not end: where it goes round."""
        from tilewright.targets.cambricon.simulate.loop import run

        seen = {int(self.state.n[at.PC])}
        for _ in range(LOOP):
            if run(self.program, self.state, stop, 1) != at.MORE:
                break
            seen.add(int(self.state.n[at.PC]))
        first, last = (self.label or "word {}".format)(min(seen)), max(seen)
        return refuse(
            "program-endless",
            f"still runs after {limit} instructions, lately in a loop up to "
            f"{(self.label or 'word {}'.format)(last)}",
            first,
            "a loop's counter must reach 0; CB branches while its register is positive",
        )


def run(
    words: Array,
    machine: Machine,
    main: NDArray[np.uint8],
    *,
    limit: int = LIMIT,
    trace: bool = False,
    races: bool = False,
    seed: int = SEED,
    label: Label | None = None,
) -> Result:
    """Run a whole program; see ``Simulator``. ``trace`` keeps events."""
    simulator = Simulator(words, machine, main, events=trace, races=races, seed=seed, label=label)
    simulator.run(limit=limit)
    return simulator.result()


def _state(
    machine: Machine,
    main: NDArray[np.uint8],
    words: int,
    kernels: int,
    events: bool,
    races: bool,
    seed: int,
) -> State:
    n = np.zeros(at.INTEGERS, np.int64)
    t = np.zeros(at.STARTS + queue_of(machine))
    n[at.RANDOM] = np.array([seed or SEED], np.uint64).view(np.int64)[0]
    size = 0
    for memory, name in ((at.VSM, "vsm"), (at.MSM, "msm"), (at.TABLES, "tables")):
        n[at.BASES + memory] = size
        n[at.SIZES + memory] = machine.memory(name).bytes or 0
        size += -(-int(n[at.SIZES + memory]) // BLOCK) * BLOCK
    n[at.SIZES + at.MAIN] = len(main)
    n[at.EVENT : at.EVENT + 5] = -1
    t[at.LANES] = lanes_of(machine)
    t[at.BANDWIDTH] = machine.memory(machine.main).bytes_per_cycle or np.inf
    t[at.REFILL] = REFILL
    moves = {move.name: move for move in machine.moves}
    for number, name in enumerate((*MOVES, "vload")):
        t[at.RATE + number] = moves[name].bytes_per_cycle
        t[at.LATENCY + number] = moves[name].latency
    totals = np.zeros((kernels, at.KERNEL_COLUMNS))
    totals[:, at.KERNEL_START] = np.inf
    chip = np.zeros(size, np.uint8)
    room = np.zeros((2, max(size // 2, ROOM)), np.int64)
    return State(
        n=n,
        t=t,
        chip=Chip(chip, chip.view(np.int16), chip.view(np.int32), chip.view(np.int64), room),
        main=main,
        known=np.zeros(size // BLOCK, np.uint64),
        visited=np.zeros(words, np.bool_),
        kernels=totals,
        events=np.zeros((FIRST_EVENTS if events else 0, at.EVENT_COLUMNS)),
        sums=np.zeros(max(int(n[at.SIZES + at.VSM]) // 2, 1), np.int32),
        shadow=np.zeros((size // 2 if races else 0, 9), np.int64),
        recent=np.zeros((MAX_RECENT if races else 0, 5), np.int64),
        races=np.zeros((MAX_RACES if races else 0, 4), np.int64),
    )
