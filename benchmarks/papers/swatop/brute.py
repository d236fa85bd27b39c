"""Brute force: every candidate of a shape is built and timed once; what was timed is kept.

A candidate is known by its C text: whatever else of the project changes, its time stays.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu import TARGET
from tilewright.targets.cpu.candidates import Candidates, Sources, built
from tilewright.targets.cpu.measure import in_turns

BATCH = 32
"""Candidates that are built together."""

TURNS = 3
"""Of the first pass: one run to warm up, two turns that count."""

TURN_SECONDS = 2e-3

LONG_SECONDS = 0.1
"""A kernel that takes longer is run twice, and warms up by itself."""

WARM = 3
"""Runs after which tensors and the clock are as they stay."""

SLOW, SLOW_SECONDS = 1.5, 5e-3
"""What takes so many times as long as the best when it is first run, and at least so many seconds,
is not run again."""

_TABLES = """
create table if not exists candidates
    (text text primary key, seconds real not null, spent real not null) without rowid;
create table if not exists rounds
    (shape text not null, texts text not null, number integer not null, seconds text not null,
    primary key (shape, texts, number)) without rowid;
create table if not exists rows (state text primary key, rows text not null) without rowid;
"""


@dataclass(frozen=True)
class Timed:
    """A candidate that was timed."""

    text: str
    """Digest of its C and of how that is built."""
    seconds: float
    spent: float
    """The processor's seconds to make, build and run it."""


class Store:
    """The file of everything that was timed."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(path, timeout=60.0)
        with self.database:
            self.database.executescript(_TABLES)

    def of(self, texts: Sequence[str]) -> dict[str, Timed]:
        """What of these was timed."""
        found: dict[str, Timed] = {}
        for text in texts:
            row = self.database.execute(
                "select seconds, spent from candidates where text = ?", (text,)
            ).fetchone()
            if row is not None:
                found[text] = Timed(text, float(row[0]), float(row[1]))
        return found

    def add(self, timed: Sequence[Timed]) -> None:
        """Keep them."""
        with self.database:
            self.database.executemany(
                "insert or replace into candidates values (?, ?, ?)",
                [(one.text, one.seconds, one.spent) for one in timed],
            )

    def rows(self, state: str) -> list[dict[str, Any]]:
        """What was found out about a shape in a state of the code; empty if nothing was."""
        row = self.database.execute("select rows from rows where state = ?", (state,)).fetchone()
        return [] if row is None else json.loads(row[0])

    def keep_rows(self, state: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep it."""
        with self.database:
            self.database.execute(
                "insert or replace into rows values (?, ?)", (state, json.dumps(list(rows)))
            )

    def rounds(self, shape: str, key: str) -> list[list[float]]:
        """What was timed in alternation, round by round."""
        rows = self.database.execute(
            "select seconds from rounds where shape = ? and texts = ? order by number", (shape, key)
        )
        return [json.loads(row[0]) for row in rows]

    def keep_rounds(self, shape: str, key: str, rounds: Sequence[Sequence[float]]) -> None:
        """Keep it."""
        with self.database:
            self.database.executemany(
                "insert or replace into rounds values (?, ?, ?, ?)",
                [(shape, key, n, json.dumps(list(row))) for n, row in enumerate(rounds)],
            )


def digest(text: str) -> str:
    """What a candidate is known by: its C, the compiler and its flags."""
    return sha256(f"{TARGET.built()}\n{text}".encode()).hexdigest()


def digests(sources: Sources) -> list[str | None]:
    """In the order of the schedules; None for what cannot be built."""
    return [None if source is None else digest(source.text) for source in sources.kernels]


def busy_seconds() -> float:
    """Of this process and of the compilers that it ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def search(
    kernel: Kernel, machine: Machine, schedules: Sequence[Schedule], store: Store
) -> list[Timed | None]:
    """Time every schedule that is not known yet; in the order of the schedules."""
    begin = busy_seconds()
    sources = Sources.of(kernel, machine, schedules)
    making = (busy_seconds() - begin) / max(len(schedules), 1)
    texts = digests(sources)
    known = store.of([text for text in texts if text is not None])
    missing = [number for number in sources.distinct if texts[number] not in known]
    batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
    begin = busy_seconds()
    for batch, candidates in _built_ahead(sources, batches):
        for _ in range(WARM):
            candidates.seconds(batch[0])
        first = {number: candidates.seconds(number) for number in batch}
        best = min(*first.values(), *(one.seconds for one in known.values()), inf)
        again = [n for n in batch if first[n] <= max(SLOW * best, SLOW_SECONDS)]
        short = [number for number in again if first[number] <= LONG_SECONDS]
        for number in set(again) - set(short):
            first[number] = min(first[number], candidates.seconds(number))
        if short:
            first |= in_turns(candidates, short, TURNS, TURN_SECONDS)
        # In part it was spent on the next batch, which is charged the less: the sum is right.
        now = busy_seconds()
        spent, begin = making + (now - begin) / len(batch), now
        made = [Timed(str(texts[number]), first[number], spent) for number in batch]
        store.add(made)
        known |= {one.text: one for one in made}
    return [None if text is None else known[text] for text in texts]


def _built_ahead(
    sources: Sources, batches: Sequence[Sequence[int]]
) -> Generator[tuple[Sequence[int], Candidates]]:
    """Batches one after the other, built; other cores build the next while one is timed."""

    def make(batch: Sequence[int]) -> tuple[ExitStack, Candidates]:
        stack = ExitStack()
        return stack, stack.enter_context(built(sources, batch))

    with ThreadPoolExecutor(max_workers=1) as builder:
        coming: list[Future[tuple[ExitStack, Candidates]]] = []
        try:
            for number, batch in enumerate(batches):
                stack, candidates = (
                    coming.pop() if coming else builder.submit(make, batch)
                ).result()
                with stack:
                    coming += [
                        builder.submit(make, one) for one in batches[number + 1 : number + 2]
                    ]
                    yield batch, candidates
        finally:
            for one in coming:
                one.result()[0].close()
