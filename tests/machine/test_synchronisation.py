"""How engines wait for one another, as a machine file says it."""

from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, load_machine, to_toml

MACHINES = Path(__file__).parents[2] / "examples" / "machines"
SMALL = (MACHINES / "small-npu.toml").read_text()


def with_line(line: str) -> Machine:
    return load_machine(f"{line}\n{SMALL}")


@pytest.mark.parametrize(
    ("line", "style", "count", "limit"),
    [
        ("", "counters", 1, None),
        ('synchronisation = "none"', "none", 1, None),
        ('synchronisation = "tokens"', "tokens", 1, None),
        ('synchronisation = { style = "tokens", depth = 64 }', "tokens", 1, 64),
        ('synchronisation = { style = "flags", ids = 4 }', "flags", 4, 1),
        ('synchronisation = { style = "flags", ids = 4, depth = 15 }', "flags", 4, 15),
        ('synchronisation = { style = "replies", ids = 12 }', "replies", 12, 1),
    ],
)
def test_styles(line: str, style: str, count: int, limit: int | None) -> None:
    machine = with_line(line)
    found = machine.synchronisation
    assert (found.style, found.count, found.limit) == (style, count, limit)
    assert load_machine(to_toml(machine)) == machine
    assert Machine.from_json(machine.to_json()) == machine


@pytest.mark.parametrize(
    ("line", "where", "reason"),
    [
        ('synchronisation = "flags"', "synchronisation.ids", "how many flags of each ordered pair"),
        ('synchronisation = { style = "replies" }', "synchronisation.ids", "how many reply words"),
        ("synchronisation = { ids = 4 }", "synchronisation.ids", "counters have no ids"),
        (
            'synchronisation = { style = "tokens", ids = 4 }',
            "synchronisation.ids",
            "tokens have no ids",
        ),
        ('synchronisation = { style = "none", depth = 4 }', "synchronisation.depth", "no depth"),
        (
            'synchronisation = { style = "flags", ids = 33 }',
            "synchronisation.ids",
            "names at most 32",
        ),
        ('synchronisation = { style = "flags", ids = 0 }', "synchronisation.ids", "greater than"),
        ('synchronisation = { style = "flag", ids = 4 }', "synchronisation.style", "'flags'"),
        ('synchronisation = { style = "flags", id = 4 }', "synchronisation.id", "unknown key"),
    ],
)
def test_refusals(line: str, where: str, reason: str) -> None:
    with pytest.raises(TilewrightError, match=reason) as caught:
        with_line(line)
    assert where in [problem.where for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("c", "where", "reason"),
    [
        ("", "c.signal", "names no C function"),
        (', signal = "npu_set"', "c.barrier", "names no C function"),
        (', signal = "npu_wait", barrier = "npu_bar"', "c.signal", "already the name of c.wait"),
        (', signal = "npu_set", barrier = "if"', "c.barrier", "a word of C"),
    ],
)
def test_functions_of_flags(c: str, where: str, reason: str) -> None:
    text = (MACHINES / "small-npu-c.toml").read_text()
    text = text.replace('finish = "npu_finish"', f'finish = "npu_finish"{c}')
    with pytest.raises(TilewrightError, match=reason) as caught:
        load_machine(f'synchronisation = {{ style = "flags", ids = 4 }}\n{text}')
    assert any(
        problem.where == where and reason in problem.reason for problem in caught.value.problems
    )


def test_functions_of_other_styles() -> None:
    text = (MACHINES / "small-npu-c.toml").read_text()
    with pytest.raises(TilewrightError, match="not for tokens"):
        load_machine(f'synchronisation = "tokens"\n{text}')
    text = text.replace('finish = "npu_finish"', 'finish = "npu_finish", signal = "npu_set"')
    with pytest.raises(TilewrightError, match="is of machines with flags"):
        load_machine(text)


@pytest.mark.parametrize("name", ["flags", "replies", "tokens"])
def test_each_style_has_an_example(name: str) -> None:
    assert load_machine(MACHINES / f"{name}.toml").synchronisation.style == name
