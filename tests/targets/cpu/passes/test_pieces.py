"""choose-methods takes pieces of bfloat16 where they are defined; networks mean the same."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.graph.passes.pass_networks import Builder
from tests.targets.cpu.passes.test_choose_methods import anchors, apply, methods

from tilewright.graph.dialect import WeightOp, network_of
from tilewright.ir import ModuleOp, SSAValue, bf16, f32
from tilewright.ir.types import tensor_type
from tilewright.numerics.pieces import THREE, TWO, split_weights
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

WINDOWS = cpu(Processor(16, 32, vectors_per_cycle=2.0, level2_bytes=2 << 20, block_cycles=48.0))
TILES = WINDOWS.with_values({"own.cpu.pieces": "all"})

EVERYWHERE = ("conv_pieces", "matmul_pieces")
WHOLE = ("conv_pieces_3", "matmul_pieces_3")
TAKEN = {TWO: (TILES, EVERYWHERE, bf16), THREE: (WINDOWS, WHOLE, f32)}
"""A machine that takes so many pieces everywhere, by which primitives, on which weights."""

Make = Callable[[Builder, SSAValue], SSAValue]


def drawn(net: Builder, *shape: int) -> SSAValue:
    return net.drawn(*shape, scale=float(np.prod(shape[1:])) ** -0.5)


IMAGES: dict[str, tuple[str, Make]] = {
    "conv": ("piece_conv", lambda n, x: n.op("conv", x, drawn(n, 32, 48, 3, 3))),
    "strided": (
        "piece_conv",
        lambda n, x: n.op(
            "conv",
            x,
            drawn(n, 20, 48, 2, 3),
            n.drawn(20),
            strides=(3, 2),
            pads=(1, 0, 0, 2),
            dilations=(2, 1),
        ),
    ),
    "groups": ("conv", lambda n, x: n.op("conv", x, drawn(n, 64, 24, 3, 3), group=2)),
    "computed": ("conv", lambda n, x: n.op("conv", x, n.op("relu", n.inputs["w"]))),
}

ROWS: dict[str, tuple[str, Make]] = {
    "product": ("piece_matmul", lambda n, x: n.op("matmul", x, drawn(n, 48, 40))),
    "transposed": (
        "piece_matmul",
        lambda n, x: n.op("matmul", x, drawn(n, 40, 48), n.drawn(40), transpose_b=True),
    ),
    "computed": ("matmul", lambda n, x: n.op("matmul", x, n.op("relu", n.inputs["w"]))),
    "left transposed": (
        "matmul",
        lambda n, x: n.op("matmul", x, drawn(n, 33, 40), transpose_a=True),
    ),
}


def elements(module: ModuleOp) -> set[object]:
    """Element types of the weights of the anchors in pieces."""
    found = [op for op in anchors(module) if op.operation.startswith("piece_")]
    return {tensor_type(op.inputs[1]).element_type for op in found}


@pytest.mark.parametrize("pieces", TAKEN)
@pytest.mark.parametrize("name", IMAGES)
def test_convolutions_with_constant_weights_and_no_groups(name: str, pieces: int) -> None:
    expected, make = IMAGES[name]
    machine, names, element = TAKEN[pieces]
    inputs: dict[str, tuple[int, ...]] = {"x": (2, 48, 9, 11)}
    net = Builder(3, **inputs, **({"w": (32, 48, 1, 1)} if name == "computed" else {}))
    module = apply(net, make(net, net.inputs["x"]), machine=machine, method=names)
    assert methods(module)[-1] == expected
    assert elements(module) == ({element} if expected.startswith("piece_") else set())


@pytest.mark.parametrize("pieces", TAKEN)
@pytest.mark.parametrize("name", ROWS)
def test_products_of_rows_with_constant_weights(name: str, pieces: int) -> None:
    expected, make = ROWS[name]
    machine, names, element = TAKEN[pieces]
    net = Builder(3, x=(33, 48), **({"w": (48, 40)} if name == "computed" else {}))
    module = apply(net, make(net, net.inputs["x"]), machine=machine, method=names)
    assert methods(module)[-1] == expected
    assert elements(module) == ({element} if expected.startswith("piece_") else set())


@pytest.mark.parametrize("pieces", TAKEN)
@pytest.mark.parametrize("transposed", [False, True])
def test_weights_are_laid_out_once_and_take_as_many_bytes(transposed: bool, pieces: int) -> None:
    machine, names, element = TAKEN[pieces]
    net = Builder(5, x=(33, 64))
    w = drawn(net, 64, 64)
    x = net.inputs["x"]
    for _ in range(3):
        x = net.op("matmul", x, w, transpose_b=transposed)
    symbol = w.owner.symbol.data  # type: ignore[union-attr]
    given = net.store.get(symbol)
    module = apply(net, x, machine=machine, method=names)
    assert methods(module) == ["piece_matmul"] * 3
    kept = [op for op in network_of(module).block.ops if isinstance(op, WeightOp)]
    assert all(tensor_type(op.result).element_type == element for op in kept)
    (name,) = {op.symbol.data for op in kept}
    split = net.store.get(name)
    assert split.nbytes == given.nbytes
    expected = split_weights(given if transposed else given.T, pieces)
    assert split.astype(np.float32).tolist() == expected.astype(np.float32).tolist()


def test_they_are_taken_where_they_are_fastest() -> None:
    """Many channels are; a few points, or few channels, are no work for tiles."""
    net = Builder(6, x=(1, 256, 28, 28), r=(1, 512), i=(1, 3, 28, 28))
    wide = net.op("conv", net.inputs["x"], drawn(net, 256, 256, 1, 1))
    row = net.op("matmul", net.inputs["r"], drawn(net, 512, 512))
    first = net.op("conv", net.inputs["i"], drawn(net, 32, 3, 3, 3))
    module = apply(net, wide, row, first, machine=TILES)
    assert sorted(op.operation for op in anchors(module)) == ["conv", "matmul", "piece_conv"]


def test_an_exact_machine_takes_none_but_three() -> None:
    net = Builder(6, x=(1, 256, 28, 28))
    wide = net.op("conv", net.inputs["x"], drawn(net, 256, 256, 1, 1))
    module = apply(net, wide, machine=TILES.exact().with_values({"memory_growth": 2}))
    assert methods(module) == ["piece_conv"] and elements(module) == {f32}


def test_two_pieces_take_the_place_of_winograds_method_alone_unless_asked() -> None:
    for machine, other in ((WINDOWS, f32), (TILES, bf16)):
        net = Builder(7, x=(1, 256, 28, 28), r=(128, 512))
        x = net.op("conv", net.inputs["x"], drawn(net, 256, 256, 3, 3), pads=(1, 1, 1, 1))
        x = net.op("conv", x, drawn(net, 256, 256, 1, 1))
        x = net.op("conv", x, drawn(net, 256, 256, 3, 3), strides=(2, 2))
        r = net.op("matmul", net.inputs["r"], drawn(net, 512, 512))
        found = anchors(apply(net, x, r, machine=machine))
        assert sorted(op.operation for op in found) == [*["piece_conv"] * 3, "piece_matmul"]
        two = [op for op in found if tensor_type(op.inputs[1]).element_type == bf16]
        assert len(two) == (1 if other == f32 else 4)
        assert any(op.operation == "piece_conv" for op in two)
