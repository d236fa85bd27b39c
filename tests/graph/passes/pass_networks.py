"""Networks for the tests of passes: a builder, random networks, machines, and a plain evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import BY_NAME
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import element_of, shape_of, tensor
from tilewright.machine import Engine, Machine, Memory, Move, Primitive, Storage

Array = NDArray[Any]


class Builder:
    """Builds a network operation by operation; weights are drawn from a seed."""

    def __init__(self, seed: int = 0, **inputs: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(seed)
        self.store = Weights()
        self.network = NetworkOp.of("net", [(n, tensor(s)) for n, s in inputs.items()], ["y"])
        self.inputs = dict(zip(inputs, self.network.block.args, strict=True))
        self.count = 0

    def constant(self, array: Array | Sequence[float], hint: str = "w") -> SSAValue:
        data = np.asarray(array)
        data = data.astype(np.float32) if data.dtype == np.float64 else data
        made = WeightOp.of(self.store.add(data, hint), tensor(data.shape, element_of(data.dtype)))
        self.network.block.add_op(made)
        return made.result

    def drawn(self, *shape: int, scale: float = 1.0) -> SSAValue:
        return self.constant(self.random.normal(0, scale, shape).astype(np.float32))

    def op(self, name: str, *values: SSAValue, **attributes: Any) -> SSAValue:
        self.count += 1
        node = attributes.pop("node", f"{name}{self.count}")
        made = BY_NAME[name].build_from(values, attributes, node=node)
        self.network.block.add_op(made)
        return made.result

    def conv(
        self, x: SSAValue, outputs: int, kernel: int = 3, bias: bool = True, **attributes: Any
    ) -> SSAValue:
        channels = shape_of(x)[1] // attributes.get("group", 1)
        scale = 1 / np.sqrt(channels * kernel * kernel)
        operands = [x, self.drawn(outputs, channels, kernel, kernel, scale=scale)]
        if bias:
            operands.append(self.drawn(outputs, scale=0.2))
        return self.op("conv", *operands, **attributes)

    def batch_norm(self, x: SSAValue) -> SSAValue:
        channels = shape_of(x)[1]
        operands = [self.drawn(channels) for _ in range(3)]
        variance = self.constant(self.random.uniform(0.3, 2, channels).astype(np.float32))
        return self.op("batch_norm", x, *operands, variance)

    def product(self, x: SSAValue, outputs: int, bias: bool = True, **attributes: Any) -> SSAValue:
        depth = shape_of(x)[-1]
        shape = (outputs, depth) if attributes.get("transpose_b") else (depth, outputs)
        operands = [x, self.drawn(*shape, scale=1 / np.sqrt(depth))]
        if bias:
            operands.append(self.drawn(outputs, scale=0.2))
        return self.op("matmul", *operands, **attributes)

    def finish(self, *outputs: SSAValue) -> ModuleOp:
        if len(outputs) != 1:
            names = [f"y{i}" for i in range(len(outputs))]
            kinds = [(name, value.type) for name, value in self.network.inputs]
            renamed = NetworkOp.of("net", kinds, names)  # type: ignore[arg-type]
            self.network.properties["output_names"] = renamed.properties["output_names"]
        self.network.block.add_op(OutputOp.build(operands=[list(outputs)]))
        module = ModuleOp([self.network])
        module.verify()
        return module


def random_network(seed: int, steps: int = 12) -> tuple[ModuleOp, Weights]:
    """Convolutions, normalisations, pools, sums, concatenations and a classifier, by a seed."""
    pick = np.random.default_rng(seed)
    channels, size = int(pick.choice([3, 4, 8])), int(pick.choice([8, 9, 12]))
    net = Builder(seed, x=(int(pick.choice([1, 1, 2])), channels, size, size))
    values = [net.inputs["x"]]
    for _ in range(steps):
        x = values[-1] if pick.random() < 0.7 else values[int(pick.integers(len(values)))]
        made = _random_step(net, x, values, pick)
        if made is not None:
            values.append(made)
    x = values[-1]
    n, c, h, w = shape_of(x)
    match int(pick.integers(3)):
        case 0:
            x = net.op("reshape", net.op("reduce_mean", x, axes=(2, 3)), shape=(n, c))
        case 1:
            x = net.op("reshape", x, shape=(n, c * h * w))
        case _:
            x = net.op("reshape", net.op("average_pool", x, kernel=(h, w)), shape=(n, c))
    x = net.op("relu", net.product(x, 10, transpose_b=bool(pick.integers(2))))
    if pick.random() < 0.5:
        x = net.op("add", net.product(x, 7, bias=False), net.drawn(7))
    if pick.random() < 0.5:
        x = net.op("softmax", x, axis=-1)
    return net.finish(x), net.store


def _random_step(
    net: Builder, x: SSAValue, values: list[SSAValue], pick: np.random.Generator
) -> SSAValue | None:
    n, c, h, w = shape_of(x)
    wide = min(h, w)

    def same(test: Callable[[tuple[int, ...]], bool]) -> SSAValue:
        found = [value for value in values if test(shape_of(value))]
        return found[int(pick.integers(len(found)))]

    match int(pick.integers(13)):
        case 0 | 1:
            kernel, stride = int(pick.choice([1, 3])), int(pick.choice([1, 1, 2]))
            pad = kernel // 2 if pick.random() < 0.8 or wide < kernel + 2 else 0
            outputs, bias = int(pick.choice([4, 8, 6])), bool(pick.integers(2))
            return net.conv(x, outputs, kernel, bias, strides=(stride, stride), pads=(pad,) * 4)
        case 2:
            return net.conv(x, c, 3, bool(pick.integers(2)), group=c, pads=(1,) * 4)
        case 3 | 4:
            return net.batch_norm(x)
        case 5:
            name = str(pick.choice(["relu", "relu", "leaky_relu", "sigmoid", "tanh"]))
            return net.op(name, x)
        case 6:
            return net.op("clip", x, minimum=0.0, maximum=6.0)
        case 7 if wide >= 4:
            name = str(pick.choice(["max_pool", "average_pool"]))
            return net.op(name, x, kernel=(3, 2), strides=(2, 2), pads=(1, 0, 0, 0))
        case 8:
            return net.op("add", x, same(lambda shape: shape == shape_of(x)))
        case 9 if c <= 16:
            other = same(lambda shape: (shape[0], *shape[2:]) == (n, h, w) and shape[1] <= 16)
            return net.op("concat", x, other, axis=1)
        case 10 if c >= 4:
            start, stop = sorted(int(i) for i in pick.choice(c + 1, 2, replace=False))
            return net.op("slice", x, starts=(start,), ends=(stop,), axes=(1,))
        case 11:
            padded = net.op("pad", x, pads=(0, 0, 1, 0, 0, 0, 0, 1))
            return net.conv(padded, 4, 2)
        case 12:
            scaled = net.op("mul", x, net.drawn(1, c, 1, 1))
            return net.op("add", scaled, net.drawn(c, 1, 1))
        case _:
            return None


def inputs_of(module: ModuleOp, seed: int = 0) -> dict[str, Array]:
    """Random inputs of a network."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(0, 1, shape_of(value)).astype(np.float32)
        for name, value in network_of(module).inputs
    }


def evaluate(module: ModuleOp, store: Weights, inputs: dict[str, Array]) -> list[Array]:
    """The network's outputs as the interpreter computes them."""
    return list(interpret(module, store, inputs).values())


def assert_same(before: list[Array], after: list[Array], tolerance: float = 1e-5) -> None:
    """Equal shapes; equal values up to ``tolerance`` of the largest."""
    assert len(before) == len(after)
    for expected, found in zip(before, after, strict=True):
        assert expected.shape == found.shape
        assert np.isfinite(expected).all()
        scale = max(float(np.abs(expected).max()), 1e-3)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


EPILOGUE = (("add",), ("relu", "clip", "leaky_relu"), ("requantise",), ("sigmoid", "tanh"))


def accelerator(**changes: Any) -> Machine:
    """A small 16-bit accelerator with separate memories and channels-last images."""
    on_chip = {
        "input": Storage(memory="in"),
        "weight": Storage(memory="weights"),
        "bias": Storage(memory="weights"),
        "residual": Storage(memory="out"),
        "output": Storage(memory="out"),
    }

    def primitive(name: str, *operations: str, **more: Any) -> Primitive:
        return Primitive(
            name=name,
            operations=operations,
            engine="core",
            operands=on_chip,
            cycles="1",
            peak="1",
            **{"epilogue": EPILOGUE, **more},
        )

    def move(source: str, target: str) -> Move:
        name = f"{source}_{target}"
        return Move(name=name, source=source, target=target, engine="dma", bytes_per_cycle=16)

    values: dict[str, Any] = {
        "name": "small",
        "clock_hz": 1e9,
        "memories": (
            Memory(name="dram"),
            Memory(name="in", bytes=8192),
            Memory(name="out", bytes=8192),
            Memory(name="weights", bytes=32768),
        ),
        "engines": (Engine(name="core"), Engine(name="dma")),
        "moves": (
            *(move("dram", target) for target in ("in", "out", "weights")),
            move("out", "dram"),
        ),
        "primitives": (
            primitive("conv", "conv", "matmul"),
            primitive("depthwise_conv", "depthwise_conv"),
            primitive("pool", "max_pool", "average_pool"),
            primitive("vector", "add", "mul", "sub", "relu", "clip", "leaky_relu", "sigmoid"),
            primitive("softmax", "softmax", whole=("axis",), epilogue=()),
        ),
        "element": "fixed16",
        "accumulator": "fixed32",
        "layouts": {"activation": "NHWC", "weight": "OHWI"},
    }
    return Machine(**{**values, **changes})


def context(machine: Machine | None, store: Weights, **more: Any) -> CompilerContext:
    return CompilerContext(machine, store, **more)
