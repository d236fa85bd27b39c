"""The cycles that kernels add to a network, where engines run on over the ends of kernels.

A plan has the cycles of a kernel that runs alone. Where commands wait for one another and not for
kernels, the first loads of a kernel run beside the last computes and stores of the one before::

    load      k1 k2
    compute      k1 k2
    store           k1 k2

so two kernels take less together than one after the other. All kernels in a row are charged with
what the row takes by the target's timing core. Where that is less than they take alone, each is
charged in proportion to what it adds to the one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from math import isfinite

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.errors import TilewrightError
from tilewright.network.rows import alike

OVERLAP = 0.98
"""The share of the cycles of kernels alone from which on a row counts as free of overlap: what its
kernels add one by one, which takes time to find, is then about what they take alone."""


def added_cycles(
    kernels: Sequence[CompiledKernel], run_timer: RunTimer, breaks: Collection[str] | None = None
) -> Mapping[str, float]:
    """The cycles that each kernel with a program adds to those before it, by its symbol.

    A row ends at each kernel of the host, or at those alone whose symbols are in ``breaks``.
    Kernels of a row that the timer refuses are left out.
    """
    pairs: dict[object, float] = {}
    added: dict[str, float] = {}
    rows: list[list[CompiledKernel]] = [[]]
    for item in kernels:
        if item.program is not None:
            rows[-1].append(item)
        elif breaks is None or item.kernel.symbol in breaks:
            rows.append([])
    for row in rows:
        if row:
            with suppress(TilewrightError):
                added |= _of_row(row, run_timer, pairs)
    return added


def _of_row(
    row: Sequence[CompiledKernel], run_timer: RunTimer, known: dict[object, float]
) -> dict[str, float]:
    """The cycles that kernels add which run one after the other, the host none between them."""

    def time(kernels: Sequence[CompiledKernel]) -> float:
        key = alike([(item.kernel, item.schedule) for item in kernels if item.schedule is not None])
        if key not in known:
            known[key] = run_timer(kernels)
        return known[key]

    total = time(row)
    added = {
        # A timer may refuse a kernel alone that runs in its place of the network.
        item.kernel.symbol: cycles if isfinite(cycles := item.predicted_cycles) else time([item])
        for item in row
    }
    if total < OVERLAP * sum(added.values()):
        for before, item in pairwise(row):
            added[item.kernel.symbol] = max(time([before, item]) - time([before]), 0.0)
    whole = sum(added.values())
    return {symbol: cycles * total / whole for symbol, cycles in added.items()} if whole else added
