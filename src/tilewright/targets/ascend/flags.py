"""Put the flags and barriers in that a program needs, and no others.

A program of the cube has the flags of its tile program (tile/passes/assign_events.py). They are put
next to the commands that they are for, barriers within pipes come to them, and all is proven.

Flags of any other program follow from its buffers. Of each it says in whose iterations it has
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

A pipe's flags to another take as many events as slots take turns; pairs of places that lie side by
side share one, and where events run out, those do with which the proof (proof.py) holds; where that
does not suffice, fewer slots take turns than the tile program has. Hand-overs without which it
still holds are left out, one by one (both as tile programs do it, by tile/event_ids.py); then come
the barriers that it asks for, of which again all are needed. No flag depends on how fast a pipe is,
and none on whether flags count.

Flags of a kernel that takes a length are put in for the longest, and proven for others: those that
change a loop's trips or a last tile first (``proven_lengths``). Where a launch runs several blocks,
they are proven for one of each kind (blocks.py); no block touches what another one writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from tilewright.codegen.nest.value import Value, select
from tilewright.errors import TilewrightError, refuse
from tilewright.targets.ascend.blocks import alike, conflicts, traces
from tilewright.targets.ascend.fields import check_fields
from tilewright.targets.ascend.given import close_to_uses, homes_of
from tilewright.targets.ascend.look_ups import check_look_ups
from tilewright.targets.ascend.program import (
    Barrier,
    Buffer,
    Command,
    Flag,
    Loop,
    Program,
    Statement,
    Tensor,
    Tracer,
    statements,
)
from tilewright.targets.ascend.proof import Problem, missing_barriers, prove, prove_trace
from tilewright.tile.event_ids import Given, Request, give_ids, needed

MANY = 1 << 20
"""Events enough for any program: how many there are is asked at the end."""


@dataclass(frozen=True)
class Handover:
    """A pipe lets another go on: after one statement of a body, before another of it."""

    source: str
    target: str
    scope: Loop | None
    after: int
    """Index, in the scope's body, of the statement behind which the flag is set."""
    before: int
    """Index of the statement before which it is waited for."""
    slots: int
    slot: str
    """The slot's expression in C, by which shared hand-overs are known."""
    value: Value
    back: bool
    """True if it returns a free slot to a later iteration."""

    @property
    def pipes(self) -> tuple[str, str]:
        """The ordered pair of pipes."""
        return self.source, self.target


def synchronised(program: Program, *, events: int = 4) -> Program:
    """The program with flags and barriers. Refuses (``lower-events``) what needs more events, and
    (``lower-flags``) what no flags of this kind make right."""
    every = cases(program)
    if any(isinstance(statement, Flag) for statement in statements(program.body)):
        return _proven(program, events, every)
    known = every[:1]
    while True:
        whole = _ordered(program, events, known, every)
        rest = (case for case in every[1:] if prove(whole, length=case[0], block=case[1]))
        wrong = next(rest, None)
        if wrong is None:
            return whole
        if wrong in known:
            problem = prove(whole, length=wrong[0], block=wrong[1])[0]
            text = f"flags do not order {program.name} at length {wrong[0]}: {problem}"
            raise refuse("lower-flags", text)
        known.append(wrong)


def _proven(program: Program, events: int, every: Sequence[Case]) -> Program:
    """A program that has the flags of its tile program, with the barriers that it needs. Refuses
    (``lower-flags``) what these do not order.

    A move or a compute of the tile program is several commands here. Where the proof allows, a flag
    is set before those of its pipe, and waited for behind those, that use nothing which the other
    pipe does: L0C is free once its sums are in UB, and a bias is needed once they are there.
    """

    def problem(placed: Program) -> Problem | None:
        tracer = Tracer(placed)
        problems = (
            prove_trace(tracer.run(length=n, block=b), events=events, most=1) for n, b in every
        )
        return next((each[0] for each in problems if each), None)

    barred = _barred(replace(program, body=list(program.body)), None, every)
    used: dict[str, set[int]] = {}
    for statement in statements(program.body):
        if isinstance(statement, Command):
            used.setdefault(statement.pipe, set()).update(homes_of(statement))
    close = replace(barred, body=close_to_uses(barred.body, used))
    if problem(close) is None:
        return close
    wrong = problem(barred)
    if wrong is None:
        return barred
    text = f"the tile program's flags do not order {program.name}: {wrong}"
    raise refuse("lower-flags", text)


Case = tuple[int, int]
"""A length, and a block."""


def cases(program: Program) -> list[Case]:
    """One block of each kind, for the longest and the lengths that are proven beside it. Refuses
    (``lower-blocks``) a program of which a block touches what another one writes, and
    (``lower-field``) one that computes a number which no field holds."""
    check_look_ups(program)
    cases: list[Case] = []
    for length in (program.longest, *proven_lengths(program.longest)):
        steps = traces(program, length)
        wrong = conflicts(steps)
        if wrong:
            raise refuse("lower-blocks", f"{program.name}: {wrong[0]}")
        for block in steps:
            check_fields(block, program.name)
        cases += [(length, block) for block in sorted(set(alike(steps)))]
    return cases


def _ordered(
    program: Program, events: int, known: Sequence[Case], every: Sequence[Case]
) -> Program:
    """The program with the flags that it needs in the cases ``known``, and the barriers that it
    needs in all."""

    def problems(placed: Program, trips: int | None = None, *, own: bool = True) -> list[Problem]:
        for length, block in known:
            problems = prove(
                placed, events=MANY, most=1, trips=trips, own=own, length=length, block=block
            )
            if problems:
                return problems
        return []

    def needed_at(trips: int | None, handovers: Sequence[Handover]) -> list[Handover]:
        """The hand-overs without which something is wrong."""
        return needed(
            handovers,
            lambda each: each.back,
            lambda fewer: not problems(_placed(program, fewer), trips, own=False),
        )

    program = replace(program, body=list(program.body))
    # Cut short, loops show as well what is missing, as long as slots are used again.
    short = 1 + max((buffer.slots for buffer in program.buffers), default=1)

    def settled(handovers: Sequence[Handover]) -> tuple[list[Handover], int | None, list[Problem]]:
        """The hand-overs that are needed, the trips that show which barriers are, and what no flags
        of these order."""
        kept = needed_at(short, handovers)
        for trips in (short, None):
            # The last iterations may need barriers that the first do not, or flags, too.
            left = problems(_barred(_placed(program, kept), trips, every))
            if not left:
                return kept, trips, left
        kept = needed_at(None, handovers)
        return kept, None, problems(_barred(_placed(program, kept), None, every))

    def given(kept: Sequence[Handover]) -> Given:
        """The events of hand-overs, or the pair that has too few."""
        return give_ids(
            [Request(each.pipes, each.slots, 1) for each in kept],
            events,
            lambda ids: not problems(_placed(program, kept, ids), own=False),
        )

    kept, trips, left = settled(_with_joins(program, list(_merged(_handovers(program)))))
    shared = Given(()) if left else given(kept)
    if not left and shared.tight is None:
        return _barred(_placed(program, kept, shared.ids), trips, every)
    narrower = _narrower(program, kept, shared.tight)
    if narrower is not None:
        return _ordered(narrower, events, known, every)
    if left:
        raise refuse("lower-flags", f"flags do not order {program.name}: {left[0]}")
    raise _too_few(program, kept, shared.tight, events)


def _too_few(
    program: Program, kept: Sequence[Handover], tight: Hashable, events: int
) -> TilewrightError:
    """The refusal of a program of which a pair of pipes asks for more events than there are."""
    asked = sum(each.slots for each in kept if each.pipes == tight)
    source, target = next(each.pipes for each in kept if each.pipes == tight)
    return refuse(
        "lower-events",
        f"{program.name} needs {asked} events from {source} to {target}; there are {events}",
        help="fewer buffers",
    )


def _narrower(program: Program, kept: Sequence[Handover], tight: Hashable) -> Program | None:
    """The program with half of the slots of some buffers, or one of an odd number: of those whose
    hand-overs take the most events, of the pipes that have too few (``tight``) if there are such.
    None where all have one slot."""
    wide = [each for each in kept if each.slots > 1 and tight in (None, each.pipes)]
    if not wide:
        return None
    widest = max(wide, key=lambda each: each.slots)
    alike = widest.scope, widest.slots, widest.slot
    narrower = deepcopy(program)
    for buffer, copied in zip(program.buffers, narrower.buffers, strict=True):
        if (buffer.scope, buffer.slots, str(buffer.slot)) == alike:
            copied.slots = 1 if buffer.slots % 2 else buffer.slots // 2
            copied.slot = buffer.slot % copied.slots
    return narrower


def proven_lengths(longest: int) -> list[int]:
    """Lengths at which a kernel's flags are proven beside the longest: one, two, three and many
    blocks of 16, whole ones and such with one row more or less."""
    ends = {1, 2, 15, 16, 17, 32, 33, 48, longest // 4, longest // 2 + 1, longest - 1}
    return sorted(length for length in ends if 0 < length < longest)


def _with_joins(program: Program, handovers: list[Handover]) -> list[Handover]:
    """The hand-overs, and those between parts of the program that use the same bytes otherwise."""
    trips = 1 + max((buffer.slots for buffer in program.buffers), default=1)
    while True:
        placed = _placed(program, handovers)
        problems = prove(placed, events=MANY, trips=trips, own=False)
        joins = [join for problem in problems if (join := _join(program, problem)) is not None]
        joins = [join for join in dict.fromkeys(joins) if join not in handovers]
        if not joins:
            return handovers
        handovers = [*handovers, joins[0]]


def _join(program: Program, problem: Problem) -> Handover | None:
    """A hand-over between the two of the program's statements that hold a race."""
    later, earlier = problem.later, problem.earlier
    if not isinstance(later, Command) or not isinstance(earlier, Command):
        return None
    ends: list[int] = []
    for command in (earlier, later):
        body = enumerate(program.body)
        inside = (n for n, part in body if command in list(statements([part])))
        ends.append(next(inside))
    if ends[0] >= ends[1]:
        return None
    return Handover(earlier.pipe, later.pipe, None, ends[0], ends[1], 1, "0", 0, False)


def _body(program: Program, scope: Loop | None) -> list[Statement]:
    return program.body if scope is None else scope.body


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
    body = _body(program, buffer.scope)
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

    def handover(source: str, after: int, target: str, before: int, back: bool) -> Handover:
        return Handover(
            source,
            target,
            buffer.scope,
            after,
            before,
            buffer.slots,
            str(buffer.slot),
            buffer.slot,
            back,
        )

    for number, (pipe, first, _, writes) in enumerate(runs):
        seen: set[str] = set()
        for other, _, last, wrote in reversed(runs[:number]):
            if other != pipe and other not in seen and (writes or wrote) and last < first:
                seen.add(other)
                yield handover(other, last, pipe, first, False)
    if buffer.scope is not None and runs and home is None:
        pipe, first, *_ = runs[0]
        seen = {pipe}
        for other, _, last, _ in reversed(runs):
            if other not in seen:
                seen.add(other)
                yield handover(other, last, pipe, first, True)


def _merged(handovers: Iterable[Handover]) -> Iterable[Handover]:
    """Hand-overs of the same pipes and slots as one, where their places allow."""
    kinds: dict[tuple[object, ...], Handover] = {}
    for handover in handovers:
        key = (*handover.pipes, id(handover.scope), handover.slots, handover.slot, handover.back)
        other = kinds.get(key)
        if other is not None:
            after, before = max(handover.after, other.after), min(handover.before, other.before)
            if handover.back or after < before:
                kinds[key] = replace(handover, after=after, before=before)
                continue
            key = (*key, len(kinds))
        kinds[key] = handover
    return kinds.values()


def _placed(program: Program, handovers: Sequence[Handover], ids: Sequence[range] = ()) -> Program:
    """The program with the flags of hand-overs, each with its events: by default its own."""
    taken: dict[tuple[str, str], int] = {}
    before: dict[tuple[int, int], list[Statement]] = {}
    after: dict[tuple[int, int], list[Statement]] = {}
    presets: list[Statement] = []
    drains: list[Statement] = []
    for number, handover in enumerate(handovers):
        pair = handover.pipes
        base = ids[number].start if ids else taken.get(pair, 0)
        taken[pair] = base + handover.slots
        event = handover.value + base if handover.slots > 1 else base
        scope = id(handover.scope)
        after.setdefault((scope, handover.after), []).append(Flag("set", *pair, event))
        before.setdefault((scope, handover.before), []).append(Flag("wait", *pair, event))
        if handover.back:
            presets += [Flag("set", *pair, base + slot) for slot in range(handover.slots)]
            drains += [Flag("wait", *pair, base + slot) for slot in range(handover.slots)]

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

    return replace(program, body=[*presets, *rebuilt(program.body, None), *drains])


def _barred(program: Program, trips: int | None, every: Sequence[Case]) -> Program:
    """The program with the barriers that it needs within pipes, one for each first command."""
    for length, block in every:
        doubtful: list[Statement] = []
        for command, doubt in missing_barriers(program, trips, length, block).items():
            barrier = _barrier(program, command)
            _insert(program.body, command, barrier)
            if doubt:
                doubtful.append(barrier)
        for barrier in doubtful:
            place = _remove(program.body, barrier)
            if place is not None and missing_barriers(program, trips, length, block):
                place[0].insert(place[1], barrier)
    return program


def _barrier(program: Program, command: Command) -> Statement:
    """The barrier before a command; of small products alone where sizes depend on the length."""
    barrier = Barrier(command.pipe)
    if not program.longest or command.spaced is None:
        return barrier
    return Loop("close", select(command.spaced, 0, 1), [barrier])


def _insert(body: list[Statement], command: Command, barrier: Statement) -> bool:
    for number, statement in enumerate(body):
        if statement is command:
            body.insert(number, barrier)
            return True
        if isinstance(statement, Loop) and _insert(statement.body, command, barrier):
            return True
    return False


def _remove(body: list[Statement], barrier: Statement) -> tuple[list[Statement], int] | None:
    for number, statement in enumerate(body):
        if statement is barrier:
            del body[number]
            return body, number
        if isinstance(statement, Loop) and (place := _remove(statement.body, barrier)):
            return place
    return None
