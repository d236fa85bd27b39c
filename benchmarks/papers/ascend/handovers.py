"""Flags of programs that are written by hand: put in where they are needed, and no others.

Flags of such a program follow from its buffers. Of each it says in whose iterations it has
contents of its own (``Buffer.scope``) and how many slots take turns; from that the pass reads who
hands it to whom. Before::

    for (s) {
        copy_gm_to_cbuf(a, ...);        /* MTE2 writes a, two slots */
        load_cbuf_to_ca(x, a, ...);     /* MTE1 reads it */
    }

After: the contents are handed on, and the slot is handed back; slots are free at the start (the
*preset*), and what is handed back last is taken at the end (the *drain*)::

    set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID0);
    set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID1);
    for (s) {
        wait_flag(PIPE_MTE1, PIPE_MTE2, s % 2);
        copy_gm_to_cbuf(a, ...);
        set_flag(PIPE_MTE2, PIPE_MTE1, s % 2);
        wait_flag(PIPE_MTE2, PIPE_MTE1, s % 2);
        load_cbuf_to_ca(x, a, ...);
        set_flag(PIPE_MTE1, PIPE_MTE2, s % 2);
    }
    wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID1);

What becomes of these hand-overs is decided as for tile programs, by tile/assignment.py, which asks
the proof of such a program (proof.py): those that stand side by side are one, those without which
the proof holds are left out, and each of the rest takes as many events of its pipes as slots
take turns. Where events run out, those share them with which the proof holds, then fewer slots take
turns, and at last a barrier of all pipes takes the place of a flag. Then come the barriers within
pipes that the proof asks for, of which again all are needed. No flag depends on how fast a pipe is,
and none on whether flags count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.codegen.nest.value import Value
from tilewright.errors import TilewrightError, refuse
from tilewright.machine.synchronisation import Synchronisation
from tilewright.targets.ascend import flags
from tilewright.targets.ascend.flags import Case, cases, first_problem, with_barriers
from tilewright.targets.ascend.program import (
    Barrier,
    Buffer,
    Command,
    Flag,
    Loop,
    Program,
    Statement,
    Tensor,
    statements,
)
from tilewright.targets.ascend.proof import Problem, prove
from tilewright.tile import assignment
from tilewright.tile.assignment import Assignment, Finding, merged

MANY = 1 << 40
"""Events enough for any program: how many there are is asked at the end."""

Handover = assignment.Handover[Loop | None, int, Buffer]
"""A pipe lets another go on: after a statement of a loop's body, before another of it, which are
known by their places there."""

Placed = assignment.Placed[Handover]


def synchronised(program: Program, *, events: int = 4) -> Program:
    """The program with flags and barriers; one that has the flags of a tile program as the target
    makes it. Refuses (``lower-flags``) what no flags and barriers of these kinds make right."""
    if any(isinstance(statement, Flag) for statement in statements(program.body)):
        return flags.synchronised(program, events=events)
    every = cases(program)
    assigned = _Assignment(program, Synchronisation(style="flags", ids=events), every)
    assigned.run(every)
    return assigned.whole


class _Assignment(Assignment[Handover, Case]):
    """The hand-overs of a program whose flags follow from its buffers."""

    def __init__(self, program: Program, limits: Synchronisation, every: Sequence[Case]) -> None:
        handovers = merged(
            list(_handovers(program)), int.__lt__, lambda each: each.of and str(each.of.slot)
        )
        super().__init__(limits, handovers, every[0])
        self.program = self.whole = program
        self.every = every
        # Cut short, loops show as well what is missing, as long as slots are used again.
        self.short = 1 + max((buffer.slots for buffer in program.buffers), default=1)
        self._add_joins()

    def _add_joins(self) -> None:
        """Hand on between parts of the program that use the same bytes otherwise."""
        while True:
            placed, _ = _placed(self.program, self.apart())
            problems = prove(placed, events=MANY, trips=self.short, pipes=False)
            known = {item.handover for item in self.items}
            joins = [_join(self.program, problem) for problem in problems]
            new = next((join for join in joins if join is not None and join not in known), None)
            if new is None:
                return
            self.items.append(Placed(new))

    def is_right(self, case: Case) -> bool:
        return first_problem(self.whole, self.limits.count, [case]) is None

    def holds(self, items: Sequence[Placed], trips: int | None = None) -> bool:
        placed, _ = _placed(self.program, items)
        return first_problem(placed, MANY, self.cases, trips, pipes=False) is None

    def prune(self) -> bool:
        items = self.items
        apart = dict(zip(items, self.apart(), strict=True))
        for trips in (self.short, None):
            self.items = items
            self.keep_needed(
                lambda fewer, trips=trips: self.holds([apart[item] for item in fewer], trips)
            )
            if self.holds([apart[item] for item in self.items]):
                break  # Else the last iterations need flags that the first do not.
        return True

    def problem(self) -> Finding[Handover] | None:
        wrong: Problem | None = None
        for trips in (self.short, None):
            # The last iterations may need barriers that the first do not.
            placed, of = _placed(self.program, self.items)
            self.whole = with_barriers(placed, trips, self.every)
            wrong = first_problem(self.whole, self.limits.count, self.cases)
            if wrong is None:
                return None
        assert wrong is not None
        return Finding(str(wrong), of.get(wrong.later))

    def refusal(self, problem: Finding[Handover]) -> TilewrightError:
        text = f"flags do not order {self.program.name}: {problem.text}"
        return refuse("lower-flags", text)


def _join(program: Program, problem: Problem) -> Handover | None:
    """A hand-over between the two of the program's statements that hold a race."""
    later, earlier = problem.later, problem.earlier
    if not isinstance(later, Command) or not isinstance(earlier, Command):
        return None
    parts = [list(statements([part])) for part in program.body]
    after, before = (
        next(number for number, part in enumerate(parts) if command in part)
        for command in (earlier, later)
    )
    if after >= before:
        return None
    return Handover(earlier.pipe, later.pipe, None, after, before, False)


def _handovers(program: Program) -> Iterable[Handover]:
    """Yield the hand-overs that each buffer's accesses need."""
    for buffer in program.buffers:
        yield from _of(program, buffer)
    for tensor in program.tensors:
        # What a kernel stores and loads again goes through main memory once.
        if tensor.written:
            whole = Buffer(tensor.name, "gm", 0, tensor.bytes)
            yield from _of(program, whole, tensor)


def _of(program: Program, buffer: Buffer, home: Tensor | None = None) -> Iterable[Handover]:
    body = program.body if buffer.scope is None else buffer.scope.body
    runs: list[tuple[str, int, int, bool]] = []
    """Pipe, first and last statement, whether it writes: one pipe's accesses in a row."""
    for number, statement in enumerate(body):
        inside = statements([statement])
        for command in (step for step in inside if isinstance(step, Command)):
            reads = any(read.place.home is (home or buffer) for read in command.reads)
            writes = any(write.place.home is (home or buffer) for write in command.writes)
            if not reads and not writes:
                continue
            if runs and runs[-1][0] == command.pipe:
                pipe, first, _, wrote = runs[-1]
                runs[-1] = (pipe, first, number, wrote or writes)
            else:
                runs.append((command.pipe, number, number, writes))

    turns = (buffer.slots, buffer if buffer.slots > 1 else None)
    for number, (pipe, first, _, writes) in enumerate(runs):
        seen: set[str] = set()
        for other, _, last, wrote in reversed(runs[:number]):
            if other != pipe and other not in seen and (writes or wrote) and last < first:
                seen.add(other)
                yield Handover(other, pipe, buffer.scope, last, first, False, *turns)
    if buffer.scope is not None and runs and home is None:
        pipe, first, *_ = runs[0]
        seen = {pipe}
        for other, _, last, _ in reversed(runs):
            if other not in seen:
                seen.add(other)
                yield Handover(other, pipe, buffer.scope, last, first, True, *turns)


def _placed(program: Program, items: Sequence[Placed]) -> tuple[Program, dict[object, Placed]]:
    """The program with the flags of hand-overs, or barriers in their place; and of which hand-over
    each flag is."""
    before: dict[tuple[int, int], list[Statement]] = {}
    after: dict[tuple[int, int], list[Statement]] = {}
    presets: list[Statement] = []
    drains: list[Statement] = []
    of: dict[object, Placed] = {}
    for item in items:
        handover, ids, pair = item.handover, item.ids, item.handover.engines
        assert handover.before is not None
        scope = id(handover.block)
        waits = before.setdefault((scope, handover.before), [])
        if item.reason:
            if not any(isinstance(each, Barrier) for each in waits):
                waits.append(Barrier("ALL"))
            continue
        turn, slots = handover.of, handover.slots
        event: Value = ids[0]
        if turn is not None:
            event += turn.slot if turn.slots == slots else turn.slot % slots
        flags: list[Statement] = [Flag(kind, *pair, event) for kind in ("set", "wait")]
        after.setdefault((scope, handover.after), []).append(flags[0])
        waits.append(flags[1])
        if handover.back:
            presets += (edge := [Flag("set", *pair, number) for number in ids])
            drains += (last := [Flag("wait", *pair, number) for number in ids])
            flags += [*edge, *last]
        of |= dict.fromkeys(flags, item)

    def rebuilt(body: Sequence[Statement], scope: Loop | None) -> list[Statement]:
        result: list[Statement] = []
        for number, statement in enumerate(body):
            result += before.get((id(scope), number), ())
            if isinstance(statement, Loop):
                inner = Loop(statement.name, statement.count)
                inner.body = rebuilt(statement.body, statement)
                result.append(inner)
            else:
                result.append(statement)
            result += after.get((id(scope), number), ())
        return result

    return replace(program, body=[*presets, *rebuilt(program.body, None), *drains]), of
