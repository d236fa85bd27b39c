"""choose-methods where software manages memory: Winograd's method as three kernels, the explicit
one as two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.graph.passes.methods import anchors, apply_methods, methods
from tests.graph.passes.pass_networks import Builder

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of
from tilewright.planning.domain import Kernel
from tilewright.targets.sunway.machine import MACHINE

THREE = ["winograd_input", "conv", "winograd_output"]
TWO = ["im2col", "conv"]


@dataclass(frozen=True)
class Price:
    """What a planner that is asked says."""

    predicted_cycles: float


def priced(**cycles: float) -> Any:
    """A planner with a price for each operation: ``product`` is the one between transforms, and
    ``rows`` that of windows; what has no price is dear."""

    def planner(kernel: Kernel) -> Price:
        anchor = kernel.anchor
        name = anchor.operation
        if name == "conv" and anchor.extents["kh"] == anchor.extents["kw"] == 1:
            name = "product" if "g" in anchor.extents else "rows"
        return Price(cycles.get(name, 1e9))

    return planner


CHEAP = priced(conv=100e3, product=20e3, winograd_input=30e3, winograd_output=30e3)


apply = partial(apply_methods, machine=MACHINE, planner=CHEAP)


def layer(net: Builder, *shape: int, pads: tuple[int, ...] = (1, 1, 1, 1), **more: Any) -> SSAValue:
    """A convolution with bias, a residual and relu."""
    w = net.drawn(*shape, scale=0.1)
    x = net.op("conv", net.inputs["x"], w, net.drawn(shape[0]), pads=pads, **more)
    return net.op("relu", net.op("add", x, net.drawn(*shape_of(x))))


def test_what_is_cheaper_in_three_kernels_becomes_three() -> None:
    net = Builder(1, x=(2, 6, 11, 9))
    module = apply(net, layer(net, 8, 6, 3, 3))
    assert methods(module) == THREE
    first, product, last = anchors(module)
    assert "Winograd" in last.how
    assert product.get("group") == (int(first.get("tile")) + 2) ** 2
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    assert [len(kernel.operations) for kernel in kernels] == [1, 1, 3]
    assert len({kernel.symbol.data for kernel in kernels}) == 3


@pytest.mark.parametrize(
    "cycles",
    [
        {"conv": 100e3, "product": 40e3, "winograd_input": 30e3, "winograd_output": 30e3},
        {"conv": 100e3, "product": 20e3, "winograd_input": 50e3, "winograd_output": 25e3},
    ],
)
def test_what_is_no_cheaper_by_a_margin_stays(cycles: Mapping[str, float]) -> None:
    net = Builder(2, x=(1, 6, 8, 8))
    assert methods(apply(net, layer(net, 8, 6, 3, 3), planner=priced(**cycles))) == ["conv"]


def test_bounds_spare_the_planner_what_cannot_win() -> None:
    asked: list[str] = []

    def planner(kernel: Kernel) -> Price:
        asked.append(kernel.anchor.operation)
        return Price(10.0)

    net = Builder(3, x=(1, 6, 8, 8))
    assert methods(apply(net, layer(net, 8, 6, 3, 3), planner=planner)) == ["conv"]
    assert set(asked) == {"conv"}


def test_what_it_is_not_defined_for_stays() -> None:
    cases: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((8, 6, 1, 1), {"pads": (0, 0, 0, 0)}),
        ((8, 6, 3, 3), {"strides": (2, 2)}),
        ((8, 6, 3, 3), {"dilations": (2, 2)}),
        ((6, 1, 3, 3), {"group": 6}),
        ((8, 6, 7, 7), {}),
    ]
    for shape, more in cases:
        net = Builder(4, x=(1, 6, 8, 8))
        assert methods(apply(net, layer(net, *shape, **more)))[0] in ("conv", "depthwise_conv")


def test_memory_and_exactness_keep_it_away() -> None:
    for machine in (MACHINE.with_values({"memory_growth": 1}), MACHINE.exact()):
        net = Builder(5, x=(1, 6, 8, 8))
        assert methods(apply(net, layer(net, 8, 6, 3, 3), machine=machine)) == ["conv"]


def test_exactness_keeps_the_explicit_method() -> None:
    net = Builder(5, x=(1, 6, 8, 8))
    cheap = priced(conv=100e3, im2col=20e3, rows=60e3, winograd_input=1.0, product=1.0)
    x = layer(net, 8, 6, 3, 3)
    assert methods(apply(net, x, machine=MACHINE.exact(), planner=cheap)) == TWO


WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((8, 6, 3, 3), {}),
    ((8, 6, 7, 5), {"pads": (3, 2, 3, 2), "strides": (2, 3)}),
    ((5, 6, 3, 2), {"pads": (2, 0, 0, 1), "dilations": (3, 2)}),
    ((8, 6, 8, 9), {"pads": (0, 0, 0, 0)}),
]


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_what_is_cheaper_in_two_kernels_becomes_two(case: Any) -> None:
    shape, more = case
    net = Builder(1, x=(2, 6, 8, 9))
    cheap = priced(conv=100e3, im2col=20e3, rows=60e3)
    module = apply(net, layer(net, *shape, **more), planner=cheap)
    assert methods(module) == TWO
    first, product = anchors(module)
    assert "explicit" in first.how
    assert shape_of(product.inputs[1]) == (shape[0], 6 * shape[2] * shape[3], 1, 1)
    kernels = [op for op in network_of(module).block.ops if isinstance(op, KernelOp)]
    assert [len(kernel.operations) for kernel in kernels] == [1, 3]
    assert len({kernel.symbol.data for kernel in kernels}) == 2


def test_the_explicit_method_needs_a_margin_a_window_and_no_groups() -> None:
    dear = priced(conv=100e3, im2col=35e3, rows=60e3)
    cases: list[tuple[tuple[int, ...], dict[str, Any], Any]] = [
        ((8, 6, 3, 3), {}, dear),
        ((8, 6, 1, 1), {"pads": (0, 0, 0, 0)}, priced(rows=100e3, im2col=1.0)),
        ((8, 3, 3, 3), {"group": 2}, priced(conv=100e3, im2col=1.0, rows=1.0)),
    ]
    for shape, more, planner in cases:
        net = Builder(4, x=(1, 6, 8, 8))
        assert methods(apply(net, layer(net, *shape, **more), planner=planner)) == ["conv"]


def test_the_explicit_method_is_taken_where_it_is_named() -> None:
    net = Builder(6, x=(3, 1, 7, 9))
    x = layer(net, 6, 1, 4, 4, strides=(2, 1), pads=(0, 1, 1, 0))
    assert methods(apply(net, x, planner=priced(conv=1.0), method=("conv_explicit",))) == TWO


def test_tensors_between_kernels_must_fit_main_memory() -> None:
    # The network alone takes 8 KB, its tensors of Winograd's method as many again at least.
    for size, expected in ((8 << 10, ["conv"]), (256 << 10, THREE)):
        net = Builder(5, x=(1, 6, 8, 8))
        machine = MACHINE.with_values({"memory.dram.bytes": size, "memory_growth": 100})
        assert methods(apply(net, layer(net, 8, 6, 3, 3), machine=machine)) == expected


@pytest.mark.parametrize(
    ("name", "tile"), [("winograd_2", 2), ("winograd_4", 4), ("winograd_6", 6)]
)
def test_a_method_that_is_named_is_taken(name: str, tile: int) -> None:
    net = Builder(6, x=(3, 4, 7, 9))
    dear = priced(conv=1.0, product=1e9, winograd_input=1e9, winograd_output=1e9)
    x = layer(net, 6, 2, 3, 3, pads=(0, 1, 1, 0), group=2)
    module = apply(net, x, planner=dear, method=(name,))
    assert methods(module) == THREE
    assert anchors(module)[0].get("tile") == tile


def test_a_method_that_no_convolution_has_is_refused() -> None:
    net = Builder(7, x=(1, 4, 7, 9))
    with pytest.raises(TilewrightError, match=r"pass-method.*im2col") as raised:
        apply(net, layer(net, 6, 4, 3, 3), method=("im2col",))
    assert "winograd_4" in str(raised.value)
