"""C functions of machines: all named, each a name that C takes, each another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.load import load_machine, to_toml

FILE = Path(__file__).parents[2] / "examples" / "machines" / "small-npu-c.toml"


def changed(old: str, new: str) -> str:
    text = FILE.read_text()
    assert old in text
    return text.replace(old, new, 1)


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(TilewrightError) as caught:
        load_machine(text)
    (problem,) = caught.value.problems
    assert problem.code == "machine-invalid" and problem.help
    return problem.where, problem.reason


@pytest.mark.parametrize(
    ("old", "new", "where", "reason"),
    [
        ('"npu_conv"', '"npu-conv"', "primitive.conv.c.function", "no C identifier"),
        ('"npu_conv"', '""', "primitive.conv.c.function", "no C identifier"),
        ('"npu_conv"', '"2d"', "primitive.conv.c.function", "no C identifier"),
        ('"npu_conv"', '"_Conv"', "primitive.conv.c.function", "no C identifier"),
        ('"npu_conv"', '"conv\\n"', "primitive.conv.c.function", "no C identifier"),
        ('"npu_conv"', f'"{"x" * 64}"', "primitive.conv.c.function", "no C identifier"),
        ('"npu_pool"', '"switch"', "primitive.pool.c.function", "word of C"),
        ('"npu_pool"', '"memcpy"', "primitive.pool.c.function", "word of C"),
        ('"npu_pool"', '"uint8_t"', "primitive.pool.c.function", "word of C"),
        ('"npu_pool"', '"npu_conv"', "primitive.pool.c.function", "primitive.conv.c.function"),
        ('"npu_load_weight"', '"do"', "move.load-weight.c.function", "word of C"),
        ('"npu_finish"', '"npu_wait"', "c.finish", "the name of c.wait"),
        ('"npu_finish"', '"return"', "c.finish", "word of C"),
        ('prefix = "npu"', 'prefix = "n p u"', "c.prefix", "no C identifier"),
        ('c.function = "npu_pool"\n', "", "primitive.pool.c", "names no C function"),
        (', c.function = "npu_load_tables"', "", "move.load-tables.c", "names no C function"),
    ],
)
def test_a_wrong_name_is_refused_with_its_key(old: str, new: str, where: str, reason: str) -> None:
    found, said = refusal(changed(old, new))
    assert found == where and reason in said


def test_functions_need_the_machine_s_own() -> None:
    text = changed('c = { prefix = "npu", wait = "npu_wait", finish = "npu_finish" }', "")
    with pytest.raises(TilewrightError) as caught:
        load_machine(text)
    assert {problem.reason for problem in caught.value.problems} == {"the machine has no table [c]"}
    assert len(caught.value.problems) == 9


def test_unknown_keys_name_the_nearest() -> None:
    with pytest.raises(TilewrightError) as caught:
        load_machine(changed('c.function = "npu_conv"', 'c.funktion = "npu_conv"'))
    found = {problem.where: problem.help for problem in caught.value.problems}
    assert found["primitive.conv.c.funktion"] == "did you mean function?"


def test_a_machine_survives_text_and_json() -> None:
    machine = load_machine(FILE)
    assert load_machine(to_toml(machine)) == machine == Machine.from_json(machine.to_json())
