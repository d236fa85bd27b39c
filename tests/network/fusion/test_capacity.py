"""What a group needs on the chip, against bytes counted by hand."""

from pathlib import Path

import pytest

from tests.graph.passes.pass_networks import Builder
from tests.network.fusion.kernel_networks import formed, kernels_of
from tilewright.errors import Problem
from tilewright.machine import Fusion, load_machine
from tilewright.network.fusion.capacity import shortage

NPU = load_machine(Path(__file__).parents[3] / "examples" / "machines" / "small-npu.toml")
"""Computes in 16 bits; images, weights and results lie in a memory each."""


def found(values: dict[str, int], fusion: Fusion, size: int = 12) -> Problem | None:
    """A convolution of 3 x 3 from 8 to 16 channels, and a pool of 2 x 2 behind it."""
    net = Builder(1, x=(1, 8, size, size))
    y = net.op("relu", net.conv(net.inputs["x"], 16, pads=(1, 1, 1, 1)))
    y = net.op("max_pool", y, kernel=(2, 2), strides=(2, 2))
    machine = NPU.with_values(values)
    module, _ = formed(net, y, machine=machine)
    return shortage(kernels_of(module), fusion, machine)


TILE = Fusion(name="f", query="conv -> pool", between="result")
WHOLE = Fusion(name="f", query="conv -> pool", between="result", residency="whole")


@pytest.mark.parametrize("fusion", [TILE, WHOLE])
def test_everything_fits(fusion: Fusion) -> None:
    assert found({}, fusion) is None
    unconditional = fusion.model_copy(update={"residency": "tile", "between": ""})
    assert found({"memory.feature.bytes": 2048}, unconditional) is None


def test_all_tensors() -> None:
    # The image between (16 channels of 12 x 12) and the pool's result (6 x 6), of 2 bytes each.
    whole = 2 * 16 * (12 * 12 + 6 * 6)
    assert found({"memory.result.bytes": whole}, WHOLE) is None
    problem = found({"memory.result.bytes": whole - 64}, WHOLE)
    assert problem is not None and problem.code == "fusion-capacity"
    assert f"{whole:,} bytes of result, 64 more than there are" in problem.reason
    assert problem.help == f"--set memory.result.bytes={whole}"


def test_a_tile_backwards() -> None:
    # One result of the pool reads 2 x 2, which read 4 x 4 of all 8 channels, at a corner 3 x 3.
    image = 2 * 8 * 3 * 3
    problem = found({"memory.feature.bytes": image - 16}, TILE)
    assert problem is not None and "bytes of feature, 16 more" in problem.reason
    assert f"{image:,} bytes" in problem.reason
    assert found({"memory.feature.bytes": image}, TILE) is None
