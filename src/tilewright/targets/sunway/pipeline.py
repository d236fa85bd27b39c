"""The two pipelines of a CPE: what a list of instructions takes.

Instructions are issued in order, at most two in a cycle, one to each pipeline. P0 takes vectors
and floats, P1 what reaches LDM and the buses; integers go to either. An instruction waits until
what it reads is there, and until an earlier write of its own target is; nothing is renamed and
nothing overtakes. A read that follows in the program is no hindrance to a write in the same cycle.

    vlds a0, 0(w)      P1   0
    ldse b0, 0(x)      P1   1     one memory instruction a cycle
    vmas a0, b0, c0    P0   5     b0 is there four cycles after its issue

Latencies are those that the machine's own compiler and public measurements give; those that no
source settles are fields of ``Latencies``, and tables that depend on them print them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

Unit = Literal["p0", "p1", "any"]

UNITS: Mapping[str, tuple[Unit, str]] = {
    "vmas": ("p0", "multiply_add"),
    "vadds": ("p0", "multiply_add"),
    "vmuls": ("p0", "multiply_add"),
    "vshff": ("p0", "shuffle"),
    "vlds": ("p1", "load"),
    "ldse": ("p1", "load"),
    "flds": ("p1", "load"),
    "ldl": ("p1", "load"),
    "vsts": ("p1", "store"),
    "fsts": ("p1", "store"),
    "getr": ("p1", "receive"),
    "getc": ("p1", "receive"),
    "putr": ("p1", "store"),
    "putc": ("p1", "store"),
    "vldr": ("p1", "load"),
    "vldc": ("p1", "load"),
    "lder": ("p1", "load"),
    "ldec": ("p1", "load"),
    "addl": ("any", "integer"),
    "branch": ("any", "integer"),
}
"""Pipeline of an instruction, and the latency that it has. ``vldr`` and ``vldc`` load a vector and
broadcast it along the row or column, ``lder`` and ``ldec`` one element in all lanes; for floats no
public kernel has them (``Float.fused``)."""


@dataclass(frozen=True)
class Latencies:
    """Cycles from an instruction's issue to the first that may use what it writes."""

    multiply_add: int = 7
    """4 in the compiler's own model, 7 in swDNN's paper; a loop over 16 accumulators hides both."""
    shuffle: int = 1
    """Not known; 1 is what vectors of integers take."""
    load: int = 4
    receive: int = 1
    """Cycles from the bus's buffer to the register, where the vector has arrived."""
    store: int = 1
    integer: int = 1


LATENCIES = Latencies()


@dataclass(frozen=True)
class Instruction:
    """One instruction: what it writes ("" for nothing), what it reads, and C that means it."""

    name: str
    target: str = ""
    sources: tuple[str, ...] = ()
    c: str = ""

    def __post_init__(self) -> None:
        if self.name not in UNITS:
            raise ValueError(f"no instruction {self.name}")

    @property
    def unit(self) -> Unit:
        """The pipeline that issues the instruction: P0, P1, or either of the two."""
        return UNITS[self.name][0]


def issued(
    program: Sequence[Instruction], latencies: Latencies = LATENCIES
) -> list[tuple[int, int]]:
    """The cycle in which each instruction is issued, and the pipeline, 0 or 1, that takes it."""
    known = {entry.name: int(getattr(latencies, entry.name)) for entry in fields(latencies)}
    ready: dict[str, int] = {}
    cycle, taken = 0, set[int]()
    slots: list[tuple[int, int]] = []
    for number, instruction in enumerate(program):
        unit, kind = UNITS[instruction.name]
        earliest = ready.get(instruction.target, 0)  # Nothing writes "".
        for name in instruction.sources:
            earliest = max(earliest, ready.get(name, 0))
        if earliest > cycle:
            cycle, taken = earliest, set()
        pipeline = _free(unit, taken, program[number + 1 : number + 2])
        if pipeline is None:
            cycle, taken = cycle + 1, set()
            pipeline = _free(unit, taken, program[number + 1 : number + 2])
            assert pipeline is not None
        taken.add(pipeline)
        slots.append((cycle, pipeline))
        if instruction.target:
            ready[instruction.target] = cycle + known[kind]
    return slots


def _free(unit: Unit, taken: set[int], following: Sequence[Instruction]) -> int | None:
    """A pipeline that is free; integers leave that which the next instruction needs."""
    if unit != "any":
        port = 0 if unit == "p0" else 1
        return None if port in taken else port
    wanted = {"p0": (1, 0), "p1": (0, 1), "any": (0, 1)}
    order = wanted[following[0].unit] if following else (0, 1)
    return next((pipeline for pipeline in order if pipeline not in taken), None)


def cycles(program: Sequence[Instruction], latencies: Latencies = LATENCIES) -> int:
    """Cycles from the first issue to the one after the last."""
    slots = issued(program, latencies)
    return slots[-1][0] + 1 if slots else 0


def steady(body: Sequence[Instruction], latencies: Latencies = LATENCIES) -> float:
    """Cycles of an iteration of a loop that runs long; branches are taken to be foreseen."""
    rounds = 8
    return (cycles(list(body) * 2 * rounds, latencies) - cycles(list(body) * rounds, latencies)) / (
        rounds
    )
