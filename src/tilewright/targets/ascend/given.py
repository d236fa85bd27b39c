"""Flags of a tile program, put next to the commands that they are for: a move or a compute of it is
several commands here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.targets.ascend.program import COUNT, Command, Flag, Loop, Statement, statements


def homes_of(statement: Statement) -> set[int]:
    """The buffers and tensors that a statement's commands use."""
    commands = [each for each in statements([statement]) if isinstance(each, Command)]
    regions = [region for each in commands for region in (*each.reads, *each.writes)]
    return {id(region.place.home) for region in regions}


def close_to_uses(body: Sequence[Statement], used: Mapping[str, set[int]]) -> list[Statement]:
    """Statements, in which flags stand beside those that use something of the other pipe's."""

    def passes(flag: Flag, other: Statement) -> bool:
        """Return True if a flag may stand on the other side of a statement."""
        if isinstance(other, Flag):
            alike = other.kind == flag.kind
            same = (other.source, other.target) == (flag.source, flag.target)
            return not (alike and same) and (alike or flag.kind == "wait")
        if isinstance(other, Command) and other.name == COUNT:
            return False  # The event may depend on it.
        theirs = used.get(flag.target if flag.kind == "set" else flag.source, set[int]())
        flags = any(isinstance(each, Flag) for each in statements([other]))
        return not flags and not homes_of(other) & theirs

    inner = [
        Loop(each.name, each.count, close_to_uses(each.body, used))
        if isinstance(each, Loop)
        else each
        for each in body
    ]
    early = _moved(inner, "set", passes)
    delayed = _moved(early[::-1], "wait", passes)
    return delayed[::-1]


def _moved(
    body: Sequence[Statement], kind: str, passes: Callable[[Flag, Statement], bool]
) -> list[Statement]:
    """Statements, of which flags of a kind stand as early as they may."""
    result: list[Statement] = []
    for statement in body:
        place = len(result)
        if isinstance(statement, Flag) and statement.kind == kind:
            while place and passes(statement, result[place - 1]):
                place -= 1
            if not any(isinstance(each, Command | Loop) for each in result[place:]) or not place:
                place = len(result)
        result.insert(place, statement)
    return result
