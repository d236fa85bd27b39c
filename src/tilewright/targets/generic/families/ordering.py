"""The instructions that order engines on machines with flags, reply words or tokens."""

from __future__ import annotations

from tilewright.codegen.words import Columns, Field, bits_for, selector
from tilewright.machine import Engine, Machine
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import Values

VALUE_BITS = 28


class _Ordering(Family):
    """Does nothing to memories."""

    def execute(self, unit: Unit, part: None, values: Values) -> None:
        """Nothing: instructions run one after the other here."""

    def touches(self, machine: Machine, part: None, columns: Columns) -> list[Touch]:
        """Return no touches, since ordering reads and writes no memory."""
        return []


class Signal(_Ordering):
    """Signals of an engine that no command carries."""

    name = "signal"
    summary = "Signals that all that its engine was given before is done."
    text = """\
With flags: once all words of its engine before are done, flag `id` of the pair of its engine and
`to` is set. With reply words and tokens it does what its fields say, as any word does, and nothing
else.
"""

    def fields(self, machine: Machine, part: Engine) -> tuple[Field, ...]:
        """The field of the flag; words and tokens have fields in every instruction."""
        if machine.synchronisation.style != "flags":
            return ()
        return (
            selector("to", others(machine, part), "the engine that waits"),
            _id(machine, "flag"),
        )


class Wait(_Ordering):
    """Waits of an engine, as words of their own."""

    name = "wait"
    summary = "Holds up what its engine is given after it."
    text = """\
With flags: until flag `id` of the pair of `from` and its engine is set; the flag is taken down.
With reply words: until `word` equals `value`.
"""

    def fields(self, machine: Machine, part: Engine) -> tuple[Field, ...]:
        """The field of the flag, or those of the word and its value."""
        if machine.synchronisation.style == "flags":
            source = selector("from", others(machine, part), "the engine that signals")
            return source, _id(machine, "flag")
        value = Field("value", VALUE_BITS, "signals counted since the start of the program")
        return Field("word", _id(machine, "").bits, "which reply word"), value


class Barrier(_Ordering):
    """A barrier of all engines at once."""

    name = "barrier"
    summary = "All that any engine was given before ends before anything that follows starts."
    text = ""

    def fields(self, machine: Machine, part: Engine) -> tuple[Field, ...]:
        """Return no fields, since the instruction has none."""
        return ()


def others(machine: Machine, engine: Engine) -> tuple[str, ...]:
    """The engines with which one makes ordered pairs."""
    return tuple(other.name for other in machine.engines if other.name != engine.name)


def carried(machine: Machine) -> tuple[Field, ...]:
    """The fields that every instruction has in place of counts to wait for."""
    match machine.synchronisation.style:
        case "replies":
            count = machine.synchronisation.count
            return (Field("reply", count, "reply words that count up once it is done, a bit each"),)
        case "tokens":
            engines = ", ".join(f"{n} {engine.name}" for n, engine in enumerate(machine.engines))
            bits = len(machine.engines)
            return (
                Field("take", bits, f"engines whose token it takes before it starts ({engines})"),
                Field("put", bits, "engines for which it puts a token once it is done"),
            )
        case _:
            return ()


def _id(machine: Machine, resource: str) -> Field:
    return Field("id", bits_for(machine.synchronisation.count - 1), f"which {resource}")
