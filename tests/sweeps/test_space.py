"""Values, ranges, keys and points of a sweep's space, and what is refused before anything runs."""

from __future__ import annotations

import itertools

import pytest

from tests.sweeps.models import MACHINE
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.sweeps.space import Point, axis_of, space_of


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("k=64K..512K:2x", [65536, 131072, 262144, 524288]),
        ("k=1..9:+2", [1, 3, 5, 7, 9]),
        ("k=1..8:+2", [1, 3, 5, 7]),
        ("k=5..5:+1", [5]),
        ("k=1..2:1.5x", [1, 1.5]),
        ("k=0.1..0.3:+0.1", [0.1, 0.2, 0.3]),
        ("k=-4..4:+4", [-4, 0, 4]),
        ("k=1M", [1 << 20]),
        ("k=4e8,8e8", [400_000_000, 800_000_000]),
        ("k=4,8,4", [4, 8]),
        ("k=1,4..16:2x,none", [1, 4, 8, 16, "none"]),
        ("planner=model,greedy{start=granule,buffers=1}",
         ["model", "greedy{start=granule,buffers=1}"]),
        ("model=../a.onnx,b..c.onnx", ["../a.onnx", "b..c.onnx"]),
    ],
)  # fmt: skip
def test_values(text: str, values: list[object]) -> None:
    found = axis_of(text).values
    assert [type(value) for value in found] == [type(value) for value in values]
    assert list(found) == pytest.approx(values) if isinstance(values[0], float) else True
    if not any(isinstance(value, float) for value in values):
        assert list(found) == values


@pytest.mark.parametrize(
    "text",
    [
        *("k=9..1:+2", "k=1..9:+0", "k=1..9:1x", "k=1..9:+-1", "k=0..9:2x", "k=-8..-1:2x"),
        *("k=1..9:0.5x", "k=1..9", "k=a..b:2x", "k=1..9:2", "k=1..1e12:+1", "k=1..1e999:2x"),
    ],
)
def test_ranges_that_are_empty_or_never_end(text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        axis_of(text)
    assert caught.value.problems[0].code == "sweep-range"


@pytest.mark.parametrize("text", ["k", "=1", "k=", "k=1,,2", "k= "])
def test_texts_that_are_no_axis(text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        axis_of(text)
    assert caught.value.problems[0].code == "sweep-vary"


def test_points_are_all_combinations_the_last_key_fastest() -> None:
    _, machine = resolve(MACHINE)
    axes = [axis_of("memory.feature.bytes=1K,2K"), axis_of("clock_hz=1e8,2e8,3e8")]
    space = space_of(["a", "b"], "model", [*axes, axis_of("planner=model,greedy")], machine)
    expected = [
        Point(model, planner, (("memory.feature.bytes", size), ("clock_hz", clock)))
        for model, planner, size, clock in itertools.product(
            ("a", "b"), ("model", "greedy"), axes[0].values, axes[1].values
        )
    ]
    assert list(space) == expected
    assert space.count == len(expected) == 24


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("memory.featur.bytes", "memory.feature.bytes"),
        ("plannr", "planner"),
        ("clock", "clock_hz"),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_the_nearest(key: str, near: str) -> None:
    _, machine = resolve(MACHINE)
    with pytest.raises(TilewrightError) as caught:
        space_of(["a"], "model", [axis_of(f"{key}=1"), axis_of("also_wrong=2")], machine)
    assert [problem.code for problem in caught.value.problems] == ["sweep-key", "sweep-key"]
    assert near in caught.value.problems[0].help


def test_every_key_of_a_variant_is_known() -> None:
    _, machine = resolve(MACHINE)
    primitive = machine.primitives[0].name
    for key in ("clock_hz", "cores", f"primitive.{primitive}.limits.co", "synchronisation.style"):
        assert space_of(["a"], "model", [axis_of(f"{key}=1")], machine).count == 1


def test_a_key_twice_and_no_model_are_refused() -> None:
    _, machine = resolve(MACHINE)
    for models, axes in ((["a"], ["clock_hz=1", "clock_hz=2"]), ([], ["clock_hz=1"])):
        with pytest.raises(TilewrightError) as caught:
            space_of(models, "model", [axis_of(text) for text in axes], machine)
        assert caught.value.problems[0].code == "sweep-vary"
