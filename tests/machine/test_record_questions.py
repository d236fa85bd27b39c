"""A question of machine/records.py is no one family's alone: that is a hook, or a shared field."""

from collections.abc import Iterator
from contextlib import suppress

from tests.machine.bundled import bundled_records
from tilewright.errors import TilewrightError
from tilewright.machine.records import (
    MachineRecord,
    MemoryRecord,
    MoveRecord,
    OperandRecord,
    PrimitiveRecord,
    Record,
)
from tilewright.system.choices import target_names
from tilewright.targets.base import find_target

KINDS: tuple[type[Record], ...] = (
    MachineRecord,
    MemoryRecord,
    MoveRecord,
    PrimitiveRecord,
    OperandRecord,
)

ALLOWED = {
    "rounding_rules": "other machines of fixed point round once, half upwards",
    "skips_padding": "elsewhere positions in the padding take their time",
    "block_by_block": "other machines move boxes of several blocks at once",
    "keeps_sums_along": "other machines load operands anew only where they have a memory apart",
    "weights_in_words": "other machines take weights one by one",
}
"""The questions that one family alone answers, each with what makes the others answer alike."""


def questions(kind: type[Record]) -> set[str]:
    """The names of the questions that a kind of record is asked."""
    return {name for name in vars(kind) if not name.startswith("_") and callable(vars(kind)[name])}


def answers(kind: type[Record]) -> Iterator[tuple[str, str]]:
    """Each question of a kind with a family that answers it otherwise than all others."""
    for family, known in bundled_records(kind).items():
        for name in questions(kind):
            if getattr(known, name) is not getattr(kind, name):
                yield name, family


def test_a_question_has_two_families_that_answer_it_or_a_reason() -> None:
    for target in target_names():
        with suppress(TilewrightError):  # One that needs a machine file.
            find_target(target).machine()
    answering: dict[str, set[str]] = {name: set() for kind in KINDS for name in questions(kind)}
    for kind in KINDS:
        for name, family in answers(kind):
            answering[name].add(family)
    assert len(answering) > 5
    single = {name for name, known in answering.items() if len(known) < 2}
    assert single == ALLOWED.keys(), "off the list, or a hook of planning/own.py or the graph's"
