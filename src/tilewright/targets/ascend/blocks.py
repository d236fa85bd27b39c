"""Blocks of a launch: which are alike, and whether any touches what another one writes.

Blocks run on several cores, in no order that a program could count on. So what one block stores no
other may load or store; ``conflicts`` looks at every access of every block. Within a block flags
and barriers order everything (proof.py), and blocks that differ in nothing but where their parts
lie in main memory need one proof: ``alike`` says which those are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.ascend.program import Access, Command, Executed, Program, Tracer
from tilewright.targets.ascend.proof import PAIR, Problem, touched

Key = tuple[object, ...]


def traces(program: Program, length: int | None = None) -> list[list[Executed]]:
    """The executions of every block."""
    tracer = Tracer(program)
    return [tracer.run(length, block) for block in range(program.blocks)]


def alike(steps: Sequence[Sequence[Executed]]) -> list[int]:
    """Return, for each block, the first block that does the same, elsewhere in main memory."""
    first: dict[Key, int] = {}
    return [first.setdefault(_key(block), number) for number, block in enumerate(steps)]


def _key(steps: Sequence[Executed]) -> Key:
    bases: dict[str, int] = {}

    def part(access: Access) -> Key:
        if not access.home.startswith("gm "):
            return access
        # Where a block begins in a tensor; addresses of pairs of bytes stay such.
        base = bases.setdefault(access.home, access.start // PAIR * PAIR)
        return (access.home, access.start - base, *access[2:])

    return tuple(
        (
            *(id(step.statement), step.event, step.spaced, step.cycles),
            tuple(part(access) for access in step.reads),
            tuple(part(access) for access in step.writes),
        )
        for step in steps
    )


def conflicts(steps: Sequence[Sequence[Executed]]) -> list[Problem]:
    """Return the accesses of blocks to what others write, the first such access of each block."""
    if len(steps) == 1:
        return []
    sizes: dict[str, int] = {}
    for block_steps in steps:
        for step in block_steps:
            for access in step.writes:
                if access.home.startswith("gm "):
                    sizes[access.home] = max(sizes.get(access.home, 0), access.end)
    owners = {home: np.zeros(-(-size // PAIR), np.int64) for home, size in sizes.items()}
    problems: list[Problem] = []
    for verb, reads in (("writes", False), ("reads", True)):
        for block, block_steps in enumerate(steps):
            problems += _conflict(block, block_steps, owners, verb, reads=reads)
    return problems


def _conflict(
    block: int,
    steps: Sequence[Executed],
    owners: dict[str, NDArray[np.int64]],
    verb: str,
    *,
    reads: bool,
) -> list[Problem]:
    for step in steps:
        for access in step.reads if reads else step.writes:
            owner = owners.get(access.home)
            if owner is None or not isinstance(step.statement, Command):
                continue
            index = touched(access)
            index = index[index < owner.size]
            others = owner[index]
            wrong = others[(others != 0) & (others != block + 1)]
            if wrong.size:
                text = (
                    f"block {block}: {step.statement.name} {verb} what block {wrong[0] - 1} writes"
                )
                return [Problem("blocks", f"{text} of {access.home[3:]}", step.statement)]
            if not reads:
                owner[index] = block + 1
    return []
