"""The figures of a chain's tilings that machines of other sizes and rates have in common.

Which boxes a tiling moves, and how many bytes these are in all, depends on neither the bytes of a
memory nor on any bandwidth; what its commands cost depends on bandwidths, and on memories through
its slots alone. So a chain that is planned again for another memory size, as the points of a sweep
and kernels beside what stays on the chip are, finds here what was computed for the first. A search
finds the same plan with it and without.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.machine import Machine
from tilewright.planning.canonical import canonical
from tilewright.planning.chains.rooms import Rooms
from tilewright.planning.chains.units import Places, Unit
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan
from tilewright.simulate.commands import TimedArray

V = TypeVar("V")

MOST_CHAINS = 256
"""Chains whose figures a process keeps, those that were asked for last."""

MOST_PLANS = 10_000
"""Chains on machines of some rates whose plans a process keeps, likewise."""

MOST_COMMANDS = 20_000
"""Tilings whose commands a process keeps, of 4000 bytes on an average for MobileNet-v2."""

MOST_MACHINES = 64
"""Machines whose texts a process keeps."""

UNSEEN = ("name", "description", "clock_hz", "fusions")
"""The keys of a machine that no figure depends on."""


@dataclass
class TileFigures:
    """The figures of the tiles of one size, in the form in which ``Tile`` keeps them."""

    spans: dict[Any, Any] = field(default_factory=dict[Any, Any])
    boxes: dict[Any, Any] = field(default_factory=dict[Any, Any])
    totals: dict[object, int] = field(default_factory=dict[object, int])
    busy: dict[str, dict[object, dict[str, float]]] = field(
        default_factory=dict[str, "dict[object, dict[str, float]]"]
    )
    """By the machine's rates, cycles of each engine."""
    homes: dict[object, dict[str, int]] = field(default_factory=dict[object, dict[str, int]])


@dataclass
class Figures:
    """The figures of one chain, by one choice of primitives."""

    loops: dict[object, frozenset[str]] = field(default_factory=dict[object, frozenset[str]])
    depths: dict[object, dict[int, int]] = field(default_factory=dict[object, "dict[int, int]"])
    levels: dict[object, dict[int, tuple[int, int]]] = field(
        default_factory=dict[object, "dict[int, tuple[int, int]]"]
    )
    around: dict[object, tuple[frozenset[str], ...]] = field(
        default_factory=dict[object, tuple[frozenset[str], ...]]
    )
    tiles: dict[tuple[int, ...], TileFigures] = field(
        default_factory=dict[tuple[int, ...], TileFigures]
    )
    """By the sizes of the tile's dims."""
    prices: dict[object, float] = field(default_factory=dict[object, float])
    """Cycles of the commands of tilings with their slots, by the machine's rates."""

    def join(self, places: Places) -> None:
        """Let the buffers of the chain on some machine find and keep what is known here."""
        places.loops, places.depths = self.loops, self.depths
        places.levels, places.around = self.levels, self.around


class Recent(Generic[V]):
    """Values by key, of which those that were asked for last are kept; threads may share them."""

    every: ClassVar[list[Recent[Any]]] = []
    """All that this process has."""

    def __init__(self, most: int) -> None:
        self.every.append(self)
        self._most = most
        self._values: OrderedDict[object, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: object, make: Callable[[], V]) -> V:
        """The value of a key; made if it is not there."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return self._values[key]

    def clear(self) -> None:
        """Let go of all values."""
        with self._lock:
            self._values.clear()


_figures = Recent[Figures](MOST_CHAINS)
_plans = Recent[list[tuple[dict[str, int], list[Rooms], Plan]]](MOST_PLANS)
_texts = Recent[tuple[Machine, str, str]](MOST_MACHINES)
_commands = Recent[tuple[Figures, TimedArray]](MOST_COMMANDS)


def forget() -> None:
    """Let go of all that this process knows."""
    for values in Recent.every:
        values.clear()


def figures_of(kernel: Kernel, units: Sequence[Unit], places: Places) -> Figures:
    """The figures of a chain, of which others are kept, too, on machines like this one.

    Tiles within tiles depend on sizes of memories: of chains that have some nothing is shared.
    """
    if places.is_deep:
        return Figures()
    form, names = canonical(kernel)
    primitives = tuple(unit.primitive.name for unit in units)
    key = form, tuple(names), primitives, texts_of(places.machine)[0]
    known = _figures.get(key, Figures)
    known.join(places)
    return known


def commands_of(figures: Figures, key: object, make: Callable[[], TimedArray]) -> TimedArray:
    """The commands of one of a chain's tilings, whose times alone depend on bandwidths."""
    # The figures are kept with the commands, so that no others have their id.
    return _commands.get((id(figures), key), lambda: (figures, make()))[1]


def known_plan(
    kernel: Kernel,
    machine: Machine,
    budget: Budget | None,
    search: Callable[[], tuple[Plan, list[Places]]],
) -> Plan:
    """The plan that a search finds: of one for other sizes of memories, if each question that it
    has asked of sizes has the same answer here (rooms.py); what a search refuses, it refuses anew.
    """
    form, names = canonical(kernel)
    limits = None if budget is None else (budget.limit, budget.timed)
    key = form, tuple(names), limits, texts_of(machine)[1]
    sizes = {memory.name: memory.bytes or 0 for memory in machine.memories}
    found = _plans.get(key, list)
    for before, rooms, plan in [*found]:
        more = {name: size - before[name] for name, size in sizes.items()}
        if all(room.hold(more) for room in rooms):
            return plan
    plan, looked = search()
    if not any(places.is_deep for places in looked):
        found.append((sizes, [places.rooms for places in looked], plan))
    return plan


def sized(machine: Machine) -> object:
    """All of a machine but for its bandwidths: what programs, and all but the times of their
    commands, depend on."""
    return texts_of(machine)[0], tuple(memory.bytes for memory in machine.memories)


def texts_of(machine: Machine) -> tuple[str, str]:
    """A machine without the bytes of its memories and without bandwidths, and without the bytes
    alone, as texts."""
    # The machine is kept with its texts, so that no other one has its id.
    return _texts.get(id(machine), lambda: _written(machine))[1:]


def _written(machine: Machine) -> tuple[Machine, str, str]:
    data = deepcopy({k: v for k, v in machine.to_json().items() if k not in UNSEEN})
    for memory in data["memories"]:
        del memory["bytes"]
    rates = json.dumps(data, sort_keys=True)
    for part in (*data["memories"], *data["moves"]):
        del part["bytes_per_cycle"]
    return machine, json.dumps(data, sort_keys=True), rates
