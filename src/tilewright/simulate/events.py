"""Signals and waits of an executed program, matched.

An engine signals another by an id: a flag, a reply word, the tokens of their pair. All of one
ordered pair and id are alike, and engines are in order, so that the n-th wait takes the n-th
signal: a wait says that its signal's engine has done what it was given before the signal. With
counts of commands in the place of signals, timing (timing.py) and the proofs (races.py, and
tile/races.py for programs whose loops are still loops) need to know nothing of styles.

What may be wrong: a wait that no signal before it in the program answers (``unanswered``: the
program may be stuck), a signal that nothing waits for (``unused``: the id is up when the next
program starts), and a signal that is given while too many of the same id are still to be taken:
the id cannot hold another (``reused``): the wait for the n-th must be over before the signal n +
depth is given, whatever the engines' speeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVENT = np.dtype(
    [
        ("place", np.int64),
        ("source", np.int16),
        ("target", np.int16),
        ("id", np.int32),
        ("signal", np.bool_),
    ]
)
"""One executed signal or wait; arrays are in program order.

- ``place``: of a signal, the entries of the source's queue that are done when it is given; of a
  wait, the number of the first entry of the target's queue that it holds up.
- ``source``, ``target``: engines, by number.
- ``id``: which flag or word of the pair.
- ``signal``: whether it is the signal, or the wait.
"""

EventArray = NDArray[np.void]
"""A one-dimensional array of EVENT records."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Matched:
    """Signals and waits of a program, by their indices in its events."""

    waits: Ints
    """Waits that a signal answers."""
    signals: Ints
    """The signal of each of these."""
    unanswered: Ints
    """Waits without a signal before them in the program."""
    unused: Ints
    """Signals without a wait."""
    again: Ints
    """Signals that come at least ``depth`` signals after one of the same id that a wait takes."""
    taken: Ints
    """For each of these, the wait that must be over before it."""


def match(events: EventArray, depth: int | None, values: Ints | None = None) -> Matched:
    """The n-th wait of each pair and id with the n-th signal.

    ``depth`` is how many signals of an id may be up at a time; None: any number. Where waits name
    the signal that they take, ``values`` has its number, from 1, for each event that is a wait.
    """
    group = np.zeros(0, np.int64)
    if events.size:
        columns = np.stack([events[name].astype(np.int64) for name in ("source", "target", "id")])
        _, group = np.unique(columns, axis=1, return_inverse=True)
    group = group.reshape(-1)
    signals, waits = np.flatnonzero(events["signal"]), np.flatnonzero(~events["signal"])
    span = events.size + 1
    given = group[signals] * span + _turns(group[signals])
    turn = _turns(group[waits]) if values is None else np.clip(values[waits], 0, span) - 1
    asked = group[waits] * span + turn
    place, known = _find(asked, given)
    matched, answers = waits[known], signals[place[known]]
    early = answers < matched
    again = np.zeros(0, np.int64)
    taken = again
    if depth is not None:
        turns = given % span
        later = np.flatnonzero(turns >= depth)
        place, present = _find(given[later] - depth, asked)
        again, taken = signals[later[present]], waits[place[present]]
    _, used = _find(given, asked)
    return Matched(
        waits=matched[early],
        signals=answers[early],
        unanswered=np.sort(np.concatenate([waits[~known], matched[~early]])),
        unused=signals[~used],
        again=again,
        taken=taken,
    )


def counts(events: EventArray, matched: Matched) -> Ints:
    """For each event: entries of the source's queue that a wait waits for; 0 for all others."""
    entries = np.zeros(events.size, np.int64)
    entries[matched.waits] = events["place"][matched.signals]
    return entries


def _turns(group: Ints) -> Ints:
    """For each item: how many items of its group stand before it."""
    order = np.argsort(group, kind="stable")
    ranked = group[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    sizes = np.diff(np.append(starts, ranked.size))
    turns = np.empty(group.size, np.int64)
    turns[order] = np.arange(group.size) - np.repeat(starts, sizes)
    return turns


def _find(wanted: Ints, keys: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the position of each wanted number among sorted keys, and whether it is there."""
    if not keys.size:
        return np.zeros(wanted.size, np.int64), np.zeros(wanted.size, np.bool_)
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], wanted), keys.size - 1)
    nearest: Any = order[place]
    return nearest, keys[nearest] == wanted
