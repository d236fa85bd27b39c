"""What other tools are asked is the work that is planned here."""

from __future__ import annotations

from math import prod

import pytest
from benchmarks.tables import compare

from benchmarks import models


def multiplications(network: str) -> int:
    """Of all layers, as benchmarks/compare/ask_vela.py is given them."""
    asked = compare.layers_of(models.build(network)[1])
    shapes, total = asked["shapes"], 0
    for layer in asked["layers"]:
        depth = {
            "conv": shapes[layer["inputs"][0]][-1],
            "depthwise": 1,
            "dense": shapes[layer["inputs"][0]][-1],
            "average": 0,
            "add": 0,
        }[layer["op"]]
        total += prod(shapes[layer["output"]]) * prod(layer.get("kernel", [1])) * depth
    return total


@pytest.mark.parametrize(
    ("network", "count"),
    # MobileNet-v2: table 4 of its paper says 300 million; Vela adds the mean's 62,720.
    [("mobilenet_v2", 300_836_992 - 62_720)],
)
def test_vela_is_given_the_whole_network(network: str, count: int) -> None:
    assert multiplications(network) == count


def test_layers_that_have_no_place_are_refused() -> None:
    with pytest.raises(ValueError, match="MaxPool"):
        compare.layers_of(models.build("resnet18")[1])


def test_the_array_is_scale_sims() -> None:
    """Compute cycles of its golden example: 32 folds of 350."""
    rows, columns, depth = compare.PRODUCT
    plan = compare.planned(compare.product(rows, columns, depth), compare.SCRIPTS / "scalesim.toml")
    (kernel,) = plan["kernels"]
    assert kernel["granule_bound_cycles"] == 11_200
    assert 11_200 < plan["cycles"] < 52_447
