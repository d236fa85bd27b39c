"""The page of mechanisms of ACC-C's code generation: switching one off changes words."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest
from benchmarks.exports import Network
from benchmarks.tables import ablation
from onnx import ModelProto


def tiny() -> ModelProto:
    """A first layer of few channels, which takes bands of pixels, and a layer of many weights."""
    net = Network("tiny", [1, 3, 16, 16])
    x = net.node("Relu", [net.conv("x", 3, 16, 3)])
    x = net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    return net.finish(net.linear(net.node("Flatten", [x]), 1024, 16))


def test_every_switch_replaces_what_is_there() -> None:
    for patches in ablation.MECHANISMS.values():
        for place, _ in patches:
            assert resolve_name(f"{ablation.LOWERING}.{place}") is not None


@pytest.mark.slow
def test_a_network_without_bands_of_pixels_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "BUILDERS", {"tiny": tiny})
    monkeypatch.setattr(ablation, "SIZES", ("cambricon",))
    (table,) = ablation.tables(["tiny"])
    rows = {row["mechanism"]: row["tiny"] for row in table.rows}
    assert list(rows) == ["cycles with all", *ablation.MECHANISMS]
    assert float(rows["bands of pixels"]) > 10
    assert float(rows["a group's pixels gathered"]) == 0
