"""Functions behind products and convolutions, on tiles in UB: the bits of kernels of their own."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.end_to_end.end_to_end_models import image
from tests.slow import dealt
from tests.targets.dpu.test_dpu_networks import Net

import tilewright
from tilewright.machine import Machine
from tilewright.runtime.executable import Executable
from tilewright.targets.ascend.network import FUNCTIONS
from tilewright.targets.base import find_target


def without(machine: Machine) -> Machine:
    """The machine that has no functions behind a product."""
    primitives = [
        primitive.model_copy(
            update={
                "epilogue": tuple(
                    tuple(name for name in group if name not in FUNCTIONS)
                    for group in primitive.epilogue
                )
            }
        )
        if primitive.engine == "m"
        else primitive
        for primitive in machine.primitives
    ]
    return machine.model_copy(update={"primitives": tuple(primitives)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "function"),
    dealt(["ascend910", "ascend310"], ["Clip", "Sigmoid", "LeakyRelu", "HardSwish"], ["Clip"]),
)
def test_functions_behind_all_kinds_of_products(target: str, function: str, tmp_path: Path) -> None:
    net = Net(1, 3, 19, 23)
    x = net.conv("x", 3, 20, 3, function, strides=[2, 2])
    x = net.conv(x, 20, 20, 3, function, group=20)
    x = net.conv(x, 20, 37, 1, function)
    path = tmp_path / "net.onnx"
    onnx.save(net.model(x), path)
    sample, machine = image(onnx.load(path)), find_target(target).machine()
    runs: list[tuple[Executable, np.ndarray]] = []
    for described in (machine, without(machine)):
        # Chains of these kernels have tests of their own.
        unchained = {"fusion": "off"}
        executable = tilewright.compile(path, target, machine=described, values=unchained)
        outputs = executable.run(sample, profile=True)
        assert executable.check(sample, outputs).equal
        runs.append((executable, next(iter(outputs.values()))))
    (fused, results), (apart, wanted) = runs
    # Tiles may cut sums differently, which rounds to the next half.
    np.testing.assert_allclose(results, wanted, rtol=2**-10, atol=0)
    assert np.unique(results).size > 20
    assert len(fused.manifest.kernels) == len(apart.manifest.kernels) - 3
    assert (fused.profile.cycles or 0) < (apart.profile.cycles or 0)
