"""Energy and area of a machine, by the figures that its file gives.

    [memory.sram]
    read_pj = "0.1 + 0.9 * bytes / 524288"    # of a byte; so is write_pj
    leakage_mw = 4.0
    area_mm2 = "0.8 * bytes / 524288"

A byte that moves is read at the source and written at the target, and ``byte_pj`` of the move
carries it; ``tile_pj`` of a primitive is an expression of a tile's dims. What takes power at rest
takes it as long as the run. Parts without a figure count as nothing, and are named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.machine.components import KEYS, component_figure
from tilewright.machine.expression import parse_expression

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Memory
    from tilewright.machine.records import Finding

LEAKAGE = "leakage"
"""The part of a run's energy that all parts take at rest."""

NAMED = 3
"""Keys without a figure that a line of text names."""

_NAMES = ("bytes", "banks")


def figure_problems(machine: Machine) -> Iterator[Finding]:
    """Yield what is wrong with expressions of memories' figures."""
    for memory in machine.memories:
        try:
            _ = component_figure(memory, "read_pj")
        except TilewrightError as error:
            problem = error.problems[0]
            yield f"memory.{memory.name}.component", problem.reason, problem.help
        for key in KEYS:
            text = getattr(memory, key)
            if not isinstance(text, str):
                continue
            where = f"memory.{memory.name}.{key}"
            try:
                names = set(parse_expression(text).names) - set(_NAMES)
                if names:
                    reason = f"there is no {', '.join(sorted(names))}"
                    yield where, reason, f"an expression of {' and '.join(_NAMES)}"
                elif "bytes" in text and memory.bytes is None:
                    yield where, "the memory has no bytes", "give a number"
                elif memory_figure(memory, key) < 0:
                    yield where, "is negative", ""
            except TilewrightError as error:
                yield where, error.problems[0].reason, ""


def memory_figure(memory: Memory, key: str) -> float:
    """A memory's figure, in the unit of its key; 0 where it is not known."""
    value = getattr(memory, key)
    if value is None:
        value = component_figure(memory, key)
    if isinstance(value, str):
        known = {"bytes": memory.bytes or 0, "banks": memory.banks}
        return float(parse_expression(value).evaluate(known))
    return value or 0.0


def _known(memory: Memory, key: str) -> bool:
    """Return True if a memory has a figure, stated or of its component."""
    return getattr(memory, key) is not None or memory.component is not None


def has_energy(machine: Machine) -> bool:
    """Return True if the machine has a figure of energy."""
    return bool(
        any(_known(m, "read_pj") or _known(m, "write_pj") for m in machine.memories)
        or any(move.byte_pj is not None for move in machine.moves)
        or any(primitive.tile_pj is not None for primitive in machine.primitives)
        or leakage_mw(machine)
    )


def without_figures(machine: Machine) -> list[str]:
    """The keys of the parts that energy counts as nothing, since the file gives no figure."""
    return [
        *(
            f"memory.{memory.name}.{key}"
            for memory in machine.memories
            for key, ends in (("read_pj", "source"), ("write_pj", "target"))
            if not _known(memory, key)
            and any(getattr(move, ends) == memory.name for move in machine.moves)
        ),
        *(f"primitive.{p.name}.tile_pj" for p in machine.primitives if p.tile_pj is None),
    ]


def leakage_mw(machine: Machine) -> float:
    """Milliwatts of all parts at rest."""
    return (
        (machine.leakage_mw or 0.0)
        + sum(memory_figure(memory, "leakage_mw") for memory in machine.memories)
        + sum(engine.leakage_mw or 0.0 for engine in machine.engines)
    )


def leakage_pj(machine: Machine, cycles: float) -> float:
    """Picojoules that all parts take at rest in ``cycles`` cycles."""
    return leakage_mw(machine) * cycles / machine.clock_hz * 1e9


def area_of(machine: Machine) -> dict[str, float]:
    """Square millimetres by memory and engine, and of the ``rest``; {} if no area is known."""
    areas = {
        memory.name: memory_figure(memory, "area_mm2")
        for memory in machine.memories
        if _known(memory, "area_mm2")
    }
    areas |= {e.name: e.area_mm2 for e in machine.engines if e.area_mm2 is not None}
    return areas if machine.area_mm2 is None else {**areas, "rest": machine.area_mm2}


def energy_of(
    machine: Machine,
    moved: Mapping[str, int],
    tiles: Mapping[tuple[str, tuple[tuple[str, int], ...]], int],
    instructions: int = 0,
) -> dict[str, float]:
    """Picojoules of some work by what takes them, without what is taken at rest.

    ``moved`` has bytes by move, ``tiles`` how many of each size a primitive computes
    (``ProgramCounts`` in tile/counts.py); ``instructions`` are fetched from main memory. The parts
    are memories, moves, and the engines that compute.
    """
    parts = defaultdict[str, float](float)
    memories = {memory.name: memory for memory in machine.memories}
    fetched = instructions * machine.instruction_bytes
    parts[machine.main] += fetched * memory_figure(memories[machine.main], "read_pj")
    for move in machine.moves:
        count = moved.get(move.name, 0)
        parts[move.source] += count * memory_figure(memories[move.source], "read_pj")
        parts[move.target] += count * memory_figure(memories[move.target], "write_pj")
        parts[move.name] += count * (move.byte_pj or 0.0)
    for (name, sizes), count in tiles.items():
        primitive = machine.primitive(name)
        if primitive.tile_pj is not None:
            each = float(parse_expression(primitive.tile_pj).evaluate(dict(sizes)))
            parts[primitive.engine] += count * each
    return {name: value for name, value in parts.items() if value}


def network_energy(
    kernels: Iterable[Mapping[str, float]], machine: Machine, cycles: float | None
) -> dict[str, float]:
    """Picojoules of all kernels by part, and of what all parts take at rest in ``cycles``."""
    total: Counter[str] = Counter()
    for parts in kernels:
        total.update(parts)
    leaked = leakage_pj(machine, cycles or 0.0)
    return dict(total) | ({LEAKAGE: leaked} if leaked else {})


def energy_text(parts: Mapping[str, float], machine: Machine | None = None) -> str:
    """The energy in words, the largest part first, and what a machine has no figure of; "" for no
    energy."""
    if not parts:
        return ""
    whole = sum(parts.values())
    shares = ", ".join(
        f"{name} {value / whole:.0%}"
        for name, value in sorted(parts.items(), key=lambda item: -item[1])
        if value >= 0.005 * whole
    )
    text = f"{joules(whole)}: {shares}"
    missing = [] if machine is None else without_figures(machine)
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        text += f" (without {', '.join(missing[:NAMED])}{more}, which the machine file leaves out)"
    return text


def joules(picojoules: float) -> str:
    """An energy in the unit that suits it."""
    for unit, size in (("J", 1e12), ("mJ", 1e9), ("uJ", 1e6), ("nJ", 1e3)):
        if picojoules >= size:
            return f"{picojoules / size:.3g} {unit}"
    return f"{picojoules:.3g} pJ"


def area_text(machine: Machine) -> str:
    """The area in words, the largest part first; "" where no part's is known."""
    areas = area_of(machine)
    parts = ", ".join(f"{n} {a:.3g}" for n, a in sorted(areas.items(), key=lambda item: -item[1]))
    return f"{sum(areas.values()):.3g} mm2: {parts}" if areas else ""
