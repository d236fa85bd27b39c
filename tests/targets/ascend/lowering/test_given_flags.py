"""Flags of cube and elementwise kernels are their tile programs', and as good as derived ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from tests.slow import but_fast
from tests.targets.ascend.cube_kernels import Product, levels
from tests.targets.ascend.mutations import KINDS

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import (
    Barrier,
    Command,
    Flag,
    Loop,
    Program,
    Statement,
    statements,
)
from tilewright.targets.ascend.proof import prove
from tilewright.targets.ascend.target import AscendTarget
from tilewright.targets.ascend.timing import simulate
from tilewright.targets.base import find_target
from tilewright.tile.decisions import EVERY_DECISION
from tilewright.tile.lower import tile


def kernel(kind: str, seed: int) -> Program:
    """A kernel at random, with the flags of its tile program; what is refused is drawn again."""
    random = np.random.default_rng([seed, 5])
    while True:
        with suppress(TilewrightError):
            return KINDS[kind](random)


def without_flags(body: Sequence[Statement]) -> Iterator[Statement]:
    """The statements without flags and barriers, in the same loops."""
    for statement in body:
        if isinstance(statement, Loop):
            statement.body = list(without_flags(statement.body))
        if not isinstance(statement, Flag | Barrier):
            yield statement


WALKED = ("products", "convolutions", "elementwise", "rows")
KERNELS = [(kind, seed) for kind in WALKED for seed in range(10)]


@pytest.mark.parametrize("case", but_fast(KERNELS, KERNELS[::10]))
def test_they_cost_no_more_than_flags_that_are_derived(case: tuple[str, int]) -> None:
    given, bare = kernel(*case), kernel(*case)
    flags = [each for each in statements(given.body) if isinstance(each, Flag)]
    assert flags
    whole = synchronised(given)
    kept = [each for each in statements(whole.body) if isinstance(each, Flag)]
    assert len(kept) == len(flags)
    derived = synchronised(replace(bare, body=list(without_flags(bare.body))))
    cycles = [simulate(program, ASCEND_910).cycles for program in (whole, derived)]
    assert cycles[0] <= 1.01 * cycles[1] + 2


@pytest.mark.parametrize("kind", WALKED)
def test_a_kernel_with_too_few_flags_is_refused(kind: str) -> None:
    """The proof of the C's own commands finds it, whatever the tile program says."""
    for seed in range(2):
        program = kernel(kind, seed)
        flags = [each for each in statements(program.body) if isinstance(each, Flag)]
        left_out = flags[-1].source, flags[-1].target

        def some(
            body: Sequence[Statement], pair: tuple[str, str] = left_out
        ) -> Iterator[Statement]:
            for statement in body:
                if isinstance(statement, Loop):
                    statement.body = list(some(statement.body, pair))
                if not isinstance(statement, Flag) or (statement.source, statement.target) != pair:
                    yield statement

        fewer = replace(program, body=list(some(program.body)))
        assert any(isinstance(each, Command) for each in statements(fewer.body))
        assert prove(fewer)
        with pytest.raises(TilewrightError, match="lower-flags"):
            synchronised(fewer)


def test_kernels_take_all_decisions() -> None:
    assert find_target("ascend910").honours == EVERY_DECISION


def of_a_length(seed: int) -> Program:
    """A product at random of which some dims have a length of their own."""
    random = np.random.default_rng([seed, 9])

    def blocks(most: int) -> int:
        return 16 * int(random.integers(1, most))

    extents = {"m": blocks(7), "ci": blocks(5), "co": blocks(5)}
    free = [{"m"}, {"m", "co"}, {"m", "ci"}][seed % 3]
    extents |= dict.fromkeys(free, extents["m"])
    near = {dim: min(size, blocks(3)) for dim, size in extents.items()}
    far = {dim: min(size, near[dim] * blocks(4) // 16) for dim, size in extents.items()}
    if far["m"] > near["m"] or far["co"] > near["co"]:  # Sums stay in L0C.
        far["ci"] = extents["ci"]
    orders = [("m", "co", "ci"), ("co", "m", "ci")]
    outer, inner = (orders[int(n)] for n in random.integers(0, 2, 2))
    bias, residual = (bool(bit) for bit in random.integers(0, 2, 2))
    batch, slots = (int(n) for n in random.integers(1, (3, 4)))
    of = Product(*(extents["m"], extents["ci"], extents["co"], batch), bias=bias, residual=residual)
    schedule = levels(far, near, outer, inner, slots)
    machine, honours = network_machine(ASCEND_910), AscendTarget.honours
    lowered = tile(of.kernel(), schedule, machine, honours=honours)
    return cube_kernel(lowered, ASCEND_910, "kernel", free=frozenset(free))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", but_fast(range(21), [1, 10]))
def test_flags_of_a_kernel_that_takes_a_length_hold_at_each(seed: int) -> None:
    """What one hand-over implies of another at the longest does not hold where loops run less
    often."""
    kernel = of_a_length(seed)
    flags = sum(isinstance(each, Flag) for each in statements(kernel.body))
    whole = synchronised(kernel)
    assert flags == sum(isinstance(each, Flag) for each in statements(whole.body)) > 0
    for length in range(1, whole.longest + 1):
        assert prove(whole, length=length) == []
