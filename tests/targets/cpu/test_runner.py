"""Arrays as callers have them, results that are theirs, and profiles made when asked for."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from tests.targets.cpu.built_networks import Array

import tilewright
from tilewright.errors import TilewrightError
from tilewright.targets.cpu import runner
from tilewright.targets.cpu.runner import CpuRunner

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"


@pytest.fixture(scope="module")
def lenet() -> tilewright.Executable:
    return tilewright.compile(LENET)


def image(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((1, 1, 32, 32)).astype(np.float32)


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: Array) -> Array:
    space = np.zeros(array.nbytes + 1, np.uint8)
    found = space[1:].view(np.float32).reshape(array.shape)
    found[...] = array
    assert not found.flags.aligned
    return found


def strided(array: Array) -> Array:
    space = np.full((1, 1, 64, 64), np.float32(np.nan))
    space[:, :, ::2, 1::2] = array
    return space[:, :, ::2, 1::2]


def subclass(array: Array) -> Array:
    class Mine(np.ndarray): ...

    return array.view(Mine)


@pytest.mark.parametrize("form", [read_only, unaligned, strided, subclass, np.asfortranarray])
def test_inputs_lie_as_callers_have_them(
    lenet: tilewright.Executable, form: Callable[[Array], Array]
) -> None:
    for seed in (1, 2):
        given = {"image": form(image(seed))}
        plain = lenet.run({"image": image(seed)})["probabilities"]
        np.testing.assert_array_equal(lenet.run(given)["probabilities"], plain)
        assert lenet.check(given, {"probabilities": plain}).equal


def test_results_belong_to_the_caller(lenet: tilewright.Executable) -> None:
    runner = lenet.runner
    assert isinstance(runner, CpuRunner)
    first = lenet.run({"image": image(1)})["probabilities"]
    before = first.copy()
    second = lenet.run({"image": image(2)})["probabilities"]
    np.testing.assert_array_equal(first, before)
    assert not np.array_equal(first, second)
    for space in (second, runner.workspace, runner.weights):
        assert not np.shares_memory(first, space)
    first[...] = 0
    np.testing.assert_array_equal(lenet.run({"image": image(1)})["probabilities"], before)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({}, "input-missing"),
        ({"image": image(1), "more": image(1)}, "input-name"),
        ({"image": image(1)[0]}, "input-shape"),
        ({"image": image(1).astype(np.float64)}, "input-dtype"),
        ({"image": image(1).astype(">f4")}, "input-dtype"),
        ({"image": [[1.0]]}, "input-shape"),
    ],
)
def test_wrong_inputs_are_refused(
    lenet: tilewright.Executable, inputs: dict[str, Array], code: str
) -> None:
    with pytest.raises(TilewrightError, match=code):
        lenet.run(inputs)


def test_a_profile_is_that_of_its_run(lenet: tilewright.Executable) -> None:
    runner = lenet.runner
    lenet.run({"image": image(1)})
    first = lenet.profile
    assert first is lenet.profile
    results = [runner.run({"image": image(2)}) for _ in range(2)]
    profiles = [result.profile for result in results]
    assert [kernel.symbol for kernel in first.kernels] == [k.name for k in lenet.manifest.kernels]
    for profile in (first, *profiles):
        spans = [kernel.seconds or 0.0 for kernel in profile.kernels]
        assert profile.seconds is not None
        assert all(span > 0.0 for span in spans) and sum(spans) < profile.seconds
    assert profiles[0].seconds != profiles[1].seconds


def test_a_run_reads_clocks_only_when_it_is_told_to(lenet: tilewright.Executable) -> None:
    assert isinstance(lenet.runner, CpuRunner)
    functions = lenet.runner.functions
    called: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            called.append(name)
            functions[name](*arguments)

        return call

    with mock.patch.object(lenet.runner, "functions", {n: noted(n) for n in functions}):
        lenet.run({"image": image(4)}, profile=True)
        assert lenet.profile.seconds and called == ["profile"]
        outputs = lenet.run({"image": image(4)})
        assert called == ["profile", "run"]
        kept = outputs["probabilities"].copy()
        outputs["probabilities"][:] += 1.0
        assert all(kernel.seconds for kernel in lenet.profile.kernels)
        assert called == ["profile", "run", "profile"]
        # The run that was made for its profile wrote elsewhere.
        np.testing.assert_array_equal(outputs["probabilities"], kept + 1.0)


def test_threads_give_the_same_and_a_profile(lenet: tilewright.Executable) -> None:
    alone = lenet.run({"image": image(3)})["probabilities"]
    try:
        lenet.runner.threads = 2
        np.testing.assert_array_equal(lenet.run({"image": image(3)})["probabilities"], alone)
        assert all((kernel.seconds or 0.0) > 0.0 for kernel in lenet.profile.kernels)
    finally:
        lenet.runner.threads = 1


def test_arrays_of_bfloat16_are_taken() -> None:
    array = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16)
    assert runner._address(array) == array.ctypes.data  # pyright: ignore[reportPrivateUsage]
