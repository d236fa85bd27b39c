"""Put the flags of a kernel in their places, and the barriers in that it needs.

A kernel has the flags of its tile program (tile/passes/assign_events.py). They are put next to the
commands that they are for, barriers within pipes come to them, and all is proven. No flag depends
on how fast a pipe is, and none on whether flags count.

Flags of a kernel that takes a length are put in for the longest, and proven for others: those that
change a loop's trips or a last tile first (``proven_lengths``). Where a launch runs several blocks,
they are proven for one of each kind (blocks.py); no block touches what another one writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.codegen.nest.value import select
from tilewright.errors import refuse
from tilewright.targets.ascend.blocks import alike, conflicts, traces
from tilewright.targets.ascend.fields import check_fields
from tilewright.targets.ascend.given import close_to_uses, homes_of
from tilewright.targets.ascend.look_ups import check_look_ups
from tilewright.targets.ascend.program import (
    Barrier,
    Command,
    Loop,
    Program,
    Statement,
    Tracer,
    statements,
)
from tilewright.targets.ascend.proof import Problem, missing_barriers, prove_trace

Case = tuple[int, int]
"""A length, and a block."""


def synchronised(program: Program, *, events: int = 4) -> Program:
    """A program that has the flags of its tile program, with the barriers that it needs. Refuses
    (``lower-flags``) what these do not order.

    A move or a compute of the tile program is several commands here. Where the proof allows, a flag
    is set before those of its pipe, and waited for after those, that use nothing which the other
    pipe does: L0C is free once its sums are in UB, and a bias is needed once they are there.
    """
    every = cases(program)
    barred = with_barriers(replace(program, body=list(program.body)), None, every)
    used: dict[str, set[int]] = {}
    for statement in statements(program.body):
        if isinstance(statement, Command):
            used.setdefault(statement.pipe, set()).update(homes_of(statement))
    close = replace(barred, body=close_to_uses(barred.body, used))
    if first_problem(close, events, every) is None:
        return close
    wrong = first_problem(barred, events, every)
    if wrong is None:
        return barred
    text = f"the tile program's flags do not order {program.name}: {wrong}"
    raise refuse("lower-flags", text)


def cases(program: Program) -> list[Case]:
    """One block of each kind, for the longest and the lengths that are proven beside it. Refuses
    (``lower-blocks``) a program of which a block touches what another one writes, (``lower-field``)
    one that computes a number which no field holds, and look-ups (``check_look_ups``)."""
    check_look_ups(program)
    cases: list[Case] = []
    for length in (program.longest, *proven_lengths(program.longest)):
        steps = traces(program, length)
        for block in steps:
            check_fields(block, program.name)
        if wrong := conflicts(steps):
            raise refuse("lower-blocks", f"{program.name}: {wrong[0]}")
        cases += [(length, block) for block in sorted(set(alike(steps)))]
    return cases


def first_problem(
    program: Program,
    events: int,
    every: Iterable[Case],
    trips: int | None = None,
    pipes: bool = True,
) -> Problem | None:
    """The first problem of a program in some cases; see ``prove``."""
    tracer = Tracer(program, trips)
    for length, block in every:
        steps = tracer.run(length=length, block=block)
        cut = trips is not None
        if problems := prove_trace(steps, events=events, most=1, cut=cut, pipes=pipes):
            return problems[0]
    return None


def proven_lengths(longest: int) -> list[int]:
    """Lengths at which a kernel's flags are proven beside the longest: one, two, three and many
    blocks of 16, whole ones and such with one row more or less."""
    ends = {1, 2, 15, 16, 17, 32, 33, 48, longest // 4, longest // 2 + 1, longest - 1}
    return sorted(length for length in ends if 0 < length < longest)


def with_barriers(program: Program, trips: int | None, every: Sequence[Case]) -> Program:
    """The program with the barriers that it needs within pipes, one for each first command."""
    for length, block in every:
        for command in missing_barriers(program, trips, length, block):
            body, number = _place(program.body, command)
            body.insert(number, _barrier(program, command))
    return program


def _barrier(program: Program, command: Command) -> Statement:
    """The barrier before a command; of small products alone where sizes depend on the length."""
    barrier = Barrier(command.pipe)
    if not program.longest or command.spaced is None:
        return barrier
    return Loop("close", select(command.spaced, 0, 1), [barrier])


def _place(body: list[Statement], statement: Statement) -> tuple[list[Statement], int]:
    """The body that a statement stands in, and its place there."""
    bodies = [body, *(each.body for each in statements(body) if isinstance(each, Loop))]
    return next((b, n) for b in bodies for n, each in enumerate(b) if each is statement)
