"""Values between kernels, as a run shows them, are the interpreter's; watching changes nothing."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.slow import but_fast
from tilewright.frontends import Imported
from tilewright.ir.types import Array

PASSES = Path(__file__).parents[1] / "graph" / "passes"
sys.path.insert(0, str(PASSES))
from pass_networks import inputs_of, random_network  # noqa: E402

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


def compared(executable: tilewright.Executable, inputs: dict[str, Array]) -> int:
    """Run watched and unwatched; how many values between kernels were compared."""
    seen: dict[str, Array] = {}
    want: dict[str, Array] = {}
    outputs = executable.run(inputs, observe=seen.__setitem__)
    executable.reference(inputs, want.__setitem__)
    exact = executable.manifest.element != "float32" and executable.runner.exact
    for name, array in seen.items():
        expected = want[name]
        assert array.shape == expected.shape and array.dtype == expected.dtype, name
        if exact:
            assert np.array_equal(array, expected), name
        else:
            scale = float(np.abs(expected).max(initial=0))
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-4 * scale + 1e-6)
    again = executable.run(inputs)
    assert all(np.array_equal(outputs[name], again[name]) for name in again)
    return len(seen)


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x", "cambricon"], ["cpu"]))
def test_lenet(target: str) -> None:
    executable = tilewright.compile(LENET, target)
    image = np.random.default_rng(3).standard_normal((1, 1, 32, 32)).astype(np.float32)
    kernels = len(executable.manifest.kernels)
    assert compared(executable, {"image": image}) >= kernels


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cambricon-x", "cambricon"])
@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed: int, target: str) -> None:
    module, store = random_network(seed)
    imported = Imported(module, store, "net", 13, "")
    executable = tilewright.compile(imported, target)
    assert compared(executable, inputs_of(module, seed)) >= len(executable.manifest.kernels)
