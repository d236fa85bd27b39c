"""The same samples give the same file, which is read back; anything else is refused."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.graph.passes.pass_networks import Builder
from tests.network.fusion.kernel_networks import formed, kernels_of
from tilewright.errors import TilewrightError
from tilewright.network.fusion.forms import described
from tilewright.network.fusion.learned.fitting import Sample
from tilewright.network.fusion.learned.model import FEWEST, digest_of, fitted, read
from tilewright.network.fusion.learned.pipeline import Instructions, instructions_of
from tilewright.planning import Planner
from tilewright.targets.dpu.core import core_named
from tilewright.targets.dpu.machine import machine_of

MACHINE = machine_of(core_named("zu2"))


LAWS = [
    {"times.load.weight": 1.3, "times.compute.conv": 1.2},
    {"times.compute.conv": 1.3},
    {"apart.conv": 1.0},
]


@cache
def kernels() -> list[Instructions]:
    """Instructions of convolutions of several sizes, of which some are bound by their weights."""
    read: list[Instructions] = []
    for number in range(FEWEST):
        size, channels = 3 + 3 * number, 24 * (FEWEST - number)
        net = Builder(1, x=(1, channels, size, size))
        module, _ = formed(net, net.conv(net.inputs["x"], 36), machine=MACHINE)
        (kernel,) = (described(op, MACHINE) for op in kernels_of(module))
        read.append(instructions_of(kernel, Planner(MACHINE).plan(kernel), MACHINE))
    return read


def samples(count: int = FEWEST, law: int = 0) -> list[Sample]:
    """Kernels whose instructions follow a law."""
    return [(kernel, kernel.cycles(LAWS[law], ready=False)) for kernel in kernels()[:count]]


@pytest.mark.parametrize("law", range(len(LAWS)))
def test_a_law_is_found_and_kept(tmp_path: Path, law: int) -> None:
    before = [abs(kernel.cycles({}, ready=False) / n - 1) for kernel, n in samples(law=law)]
    cost = fitted(samples(law=law), MACHINE)
    for name, value in LAWS[law].items():
        assert cost.values[name] == pytest.approx(value, rel=0.02)
    assert cost.greatest_deviation < 0.005 < max(before) and not cost.ready
    assert fitted(samples(law=law), MACHINE).text() == cost.text()
    file = tmp_path / "cost.json"
    file.write_text(cost.text())
    assert read(file) == cost


def test_what_is_not_learned() -> None:
    with pytest.raises(TilewrightError, match=r"\[learned-samples\] zu2: 7 kernels"):
        fitted(samples(FEWEST - 1), MACHINE)
    found = fitted(samples(FEWEST), MACHINE)
    found.check(MACHINE, "f")
    assert found.digest == digest_of(machine_of(core_named("zu2")))
    other = MACHINE.with_values({"memory.dram.bytes_per_cycle": 4})
    for machine, reason in ((other, "values have changed"), (machine_of(core_named("zu9")), "not")):
        with pytest.raises(TilewrightError, match=rf"\[learned-machine\] f: .*{reason}"):
            found.check(machine, "f")


def halved(text: str) -> str:
    return text[: len(text) // 2]


def nested(text: str) -> str:
    return "[" * 100_000


def padded(text: str) -> str:
    return text + " " * (1 << 20)


def edit(change: Callable[[Any], object]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edited


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (halved, "Invalid JSON"),
        (nested, "Invalid JSON"),
        (padded, "more than 1048576 bytes"),
        (edit(lambda c: c.update(format=1)), "format: Input should be 2"),
        (edit(lambda c: c.update(more=1)), "more: Extra inputs"),
        (edit(lambda c: c.pop("digest")), "digest: Field required"),
        (edit(lambda c: c["values"].update(a=float("nan"))), "values.a: Input should be a finite"),
        (edit(lambda c: c["values"].update(a=1e300)), "values.a"),
        (edit(lambda c: c["values"].update((str(n), 1) for n in range(1001))), "at most 1000"),
    ],
)
def test_damaged_files(tmp_path: Path, damage: Callable[[str], str], reason: str) -> None:
    file = tmp_path / "cost.json"
    file.write_text(damage(fitted(samples(FEWEST), MACHINE).text()))
    with pytest.raises(TilewrightError) as error:
        read(file)
    (problem,) = error.value.problems
    assert problem.code == "learned-file" and reason in problem.reason
    with pytest.raises(TilewrightError, match=r"\[learned-file\].*No such file"):
        read(tmp_path / "none.json")
