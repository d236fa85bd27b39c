"""The same samples give the same file, which is read back; anything else is refused."""

import json
from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.network.fusion.learned.model import FEWEST, Sample, digest_of, fitted, read
from tilewright.targets.dpu.core import core_named
from tilewright.targets.dpu.machine import machine_of

MACHINE = machine_of(core_named("zu2"))


def samples(count: int = 60) -> list[Sample]:
    """Kernels whose cycles follow a law, and of which one feature says nothing."""
    rng = np.random.default_rng(1)
    found: list[Sample] = []
    for _ in range(count):
        features = dict(zip("abc", rng.uniform(-1, 1, 3).tolist(), strict=True))
        law = 0.1 + 0.2 * features["a"] - 0.1 * features["b"]
        base = float(rng.uniform(1e3, 1e6))
        found.append((base, {**features, "floor": -1.0, "same": 3.0}, base * exp(law)))
    return found


def test_a_law_is_found_and_kept(tmp_path: Path) -> None:
    found = fitted(samples(), MACHINE)
    weights = {one.feature: one.weight for one in found.coefficients}
    assert weights.keys() == {"a", "b", "c"}
    assert weights["a"] == pytest.approx(0.2, rel=0.03)
    assert weights["b"] == pytest.approx(-0.1, rel=0.03) and abs(weights["c"]) < 0.01
    assert 0 < found.mean_deviation <= found.greatest_deviation < 0.01
    assert fitted(samples(), MACHINE).text() == found.text()
    file = tmp_path / "cost.json"
    file.write_text(found.text())
    assert read(file) == found
    base, features, cycles = samples()[0]
    assert read(file).predicted(base, features) == pytest.approx(cycles, rel=0.01)
    # Far outside of what was seen, a feature counts no more; and nothing goes below the floor.
    far, further = (found.predicted(1e3, {**features, "a": value}) for value in (1e3, 1e9))
    assert far == further > found.predicted(1e3, {**features, "a": 2.0})
    assert found.predicted(1e3, {**features, "floor": 0.5}) == pytest.approx(1e3 * exp(0.5))


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
        (edit(lambda c: c.update(format=2)), "format: Input should be 1"),
        (edit(lambda c: c.update(more=1)), "more: Extra inputs"),
        (edit(lambda c: c.pop("digest")), "digest: Field required"),
        (edit(lambda c: c.update(constant=float("nan"))), "constant: Input should be a finite"),
        (edit(lambda c: c["coefficients"][0].update(weight=1e300)), "coefficients.0.weight"),
        (edit(lambda c: c["coefficients"].extend([c["coefficients"][0]] * 1000)), "at most 1000"),
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
