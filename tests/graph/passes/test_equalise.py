"""equalise: where factors go, that floats stay what they are, and that integers gain by it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.graph.passes.pass_networks import (
    Array,
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
)
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.equalise import Equalise
from tilewright.graph.passes.equalise_sites import equalising_sites, factors_of
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp
from tilewright.numbers.calibration import observed_channels
from tilewright.numerics.formats import numbers_of
from tilewright.runtime import Executable

FLOAT = accelerator()


def loud(channels: int, seed: int = 0, by: float = 40.0) -> Array:
    """Scales of channels of which two are far larger than the others."""
    scales = np.random.default_rng(seed).uniform(0.5, 1.5, channels)
    scales[[1, channels // 2]] *= by
    return scales.astype(np.float32)


def ways(module: ModuleOp, b: Builder) -> list[str]:
    return [site.way for site in equalising_sites(network_of(module), context(FLOAT, b.store))]


def equalised(module: ModuleOp, b: Builder, numbers: str = "int8") -> int:
    """Equalise by what three random inputs show; how many values were divided."""
    ctx, names = context(FLOAT, b.store), value_names(module)
    sites = equalising_sites(network_of(module), ctx)
    axes = {names[site.value]: site.axis for site in sites}
    samples = [inputs_of(module, seed) for seed in range(3)]
    seen = observed_channels(module, b.store, samples, axes)
    for site in sites:
        found = factors_of(site, seen[names[site.value]], ctx, 8, True, numbers != "int8")
        if found is not None:
            ctx.factors[names[site.value]] = found
    Equalise(numbers).apply(ctx, module)
    module.verify()
    return len(ctx.factors)


def block(residual: bool) -> tuple[Builder, ModuleOp]:
    """A feed-forward block behind a normalisation with loud channels, perhaps around it."""
    b = Builder(1, x=(1, 6, 16))
    norm = b.op("layer_norm", b.inputs["x"], b.constant(loud(16)), b.drawn(16))
    y = b.product(b.op("gelu", b.product(norm, 32)), 16)
    return b, b.finish(b.op("tanh", b.op("add", y, norm) if residual else y))


@pytest.mark.parametrize(("residual", "wanted"), [(False, "normalisation"), (True, "multiply")])
@pytest.mark.parametrize("numbers", ["int8", "int8-power-of-two"])
def test_normalisations_take_factors_unless_others_read_them(
    residual: bool, wanted: str, numbers: str
) -> None:
    b, module = block(residual)
    assert ways(module, b) == [wanted, "multiply"]
    inputs = inputs_of(module, 9)
    before = evaluate(module, b.store, inputs)
    assert equalised(module, b, numbers) >= 1
    added = [op for op in network_of(module).block.ops if op.name == "graph.mul"]
    assert bool(added) >= residual
    assert_same(before, evaluate(module, b.store, inputs), 1e-5)


@pytest.mark.parametrize("group", [1, 2, 8])
@pytest.mark.parametrize("between", ["relu", "leaky_relu", "max_pool"])
def test_chains_of_convolutions_share_factors(group: int, between: str) -> None:
    b = Builder(2, image=(1, 3, 8, 8))
    operands = [b.constant(b.random.normal(0, 0.3, (8, 3, 3, 3)) * loud(8)[:, None, None, None])]
    operands.append(b.drawn(8))
    x = b.op("conv", b.inputs["image"], *operands)
    x = b.op(between, x, **({"kernel": (2, 2), "strides": (2, 2)} if "pool" in between else {}))
    module = b.finish(b.conv(x, 8, group=group))
    # The input's own three channels are alike: nothing is gained there.
    assert ways(module, b) == ["multiply", "product"]
    inputs = inputs_of(module, 9)
    before = evaluate(module, b.store, inputs)
    assert equalised(module, b) == 1
    assert not [op for op in network_of(module).block.ops if op.name == "graph.mul"]
    assert_same(before, evaluate(module, b.store, inputs), 1e-5)


def test_products_of_either_order_take_factors() -> None:
    b = Builder(5, x=(4, 8))
    weight = b.constant(b.random.normal(0, 0.3, (8, 12)) * loud(12))
    x = b.op("relu", b.op("matmul", b.inputs["x"], weight, b.drawn(12)))
    module = b.finish(b.product(x, 6, transpose_b=True))
    assert ways(module, b) == ["multiply", "product"]
    inputs = inputs_of(module, 9)
    before = evaluate(module, b.store, inputs)
    assert equalised(module, b) >= 1
    assert_same(before, evaluate(module, b.store, inputs), 1e-5)


def test_what_integers_make_and_sums_read_stays() -> None:
    b = Builder(3, image=(1, 4, 8, 8))
    x = b.op("relu", b.conv(b.inputs["image"], 4, pads=(1, 1, 1, 1)))
    y = b.conv(x, 4, pads=(1, 1, 1, 1))
    module = b.finish(b.conv(b.op("add", x, y), 4))
    assert ways(module, b) == ["multiply"]
    site = equalising_sites(network_of(module), context(FLOAT, b.store))[0]
    assert site.value is b.inputs["image"]
    kept = [op.node_name for op in network_of(module).block.ops if isinstance(op, Operation)]
    ctx = context(FLOAT, b.store)
    assert equalising_sites(network_of(module), ctx, keep_float=kept) == []


def test_channels_that_are_alike_stay() -> None:
    b = Builder(4, x=(1, 16, 32))
    module = b.finish(b.op("tanh", b.product(b.inputs["x"], 32)))
    text = str(module)
    assert equalised(module, b) == 0
    assert str(module) == text


def transformer(path: Path, batch: int | str = 1, width: int = 32, tokens: int = 8) -> None:
    """A block of a Transformer as BERT has it, whose normalisations have loud channels."""
    random = np.random.default_rng(0)
    weights: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def held(array: Array) -> str:
        name = f"w{len(weights)}"
        weights[name] = array.astype(np.float32)
        return name

    def dense(x: str, inner: int, outer: int) -> str:
        product = add("MatMul", x, held(random.normal(0, inner**-0.5, (inner, outer))))
        return add("Add", product, held(random.normal(0, 0.1, outer)))

    def norm(x: str, seed: int) -> str:
        return add(
            "LayerNormalization", x, held(loud(width, seed)), held(random.normal(size=width))
        )

    x = norm("x", 1)
    query, key, value = (dense(x, width, width) for _ in range(3))
    scores = add("MatMul", query, add("Transpose", key, perm=[0, 2, 1]))
    scores = add("Mul", scores, held(np.array(1e-3)))
    mixed = add("MatMul", add("Softmax", scores, axis=-1), value)
    x = norm(add("Add", dense(mixed, width, width), x), 2)
    inner = add("Gelu", dense(x, width, 4 * width))
    x = add("Add", dense(inner, 4 * width, width), x)
    add("LayerNormalization", x, held(np.ones(width)), held(np.zeros(width)))
    nodes[-1].output[0] = "y"
    shape = [batch, tokens, width]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def drawn(seed: int, count: int) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(1, 8, 32)).astype(np.float32)} for _ in range(count)]


def error(executable: Executable, exact: Executable) -> float:
    pairs = [(executable.run(x)["y"], exact.run(x)["y"]) for x in drawn(50, 6)]
    squares = sum(float(np.square(a - b).sum()) for a, b in pairs)
    return (squares / sum(float(np.square(b).sum()) for _, b in pairs)) ** 0.5


@pytest.mark.slow
def test_a_transformer_loses_less(tmp_path: Path) -> None:
    model = tmp_path / "block.onnx"
    transformer(model)
    samples = drawn(1, 20)
    exact = tilewright.compile(model, "cpu")

    def compiled(equalise: bool) -> Executable:
        return tilewright.compile(
            model, "cpu", numbers="int8", equalise=equalise, calibration=iter(samples)
        )

    plain, ours = compiled(False), compiled(True)
    assert error(ours, exact) < error(plain, exact) * 0.67


def test_integers_are_the_interpreters(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    first = random.normal(0, 0.2, (24, 32)) * loud(32)
    weights = {"w": first, "b": random.normal(size=32), "v": random.normal(0, 0.2, (32, 24))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "p"),
        helper.make_node("Add", ["p", "b"], ["s"], "s"),
        helper.make_node("Relu", ["s"], ["r"], "r"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "y"),
    ]
    graph = helper.make_graph(
        nodes, "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 24])],
        [numpy_helper.from_array(array.astype(np.float32), n) for n, array in weights.items()],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "mlp.onnx")
    scales = loud(24, 3)
    samples = [{"x": random.normal(size=(5, 24)).astype(np.float32) * scales} for _ in range(8)]
    ours = tilewright.compile(tmp_path / "mlp.onnx", "cpu", numbers="int8", calibration=samples[:4])
    for sample in samples[4:]:
        seen: dict[str, Array] = {}
        wanted: dict[str, Array] = {}
        ours.run(sample, observe=seen.__setitem__)
        ours.reference(sample, wanted.__setitem__)
        integers = [name for name, array in seen.items() if array.dtype.kind in "iu"]
        assert len(integers) >= 2
        for name in integers:
            assert np.array_equal(seen[name], wanted[name]), name


def test_streams_and_lists_give_the_same(tmp_path: Path) -> None:
    model = tmp_path / "block.onnx"
    transformer(model)
    samples = drawn(1, 20)

    def stream() -> Iterator[dict[str, Array]]:
        yield from samples

    target, machine = resolve("cpu")
    found: list[tuple[dict[str, list[float]], str]] = []
    for given in (samples, stream(), {"x": np.stack([sample["x"] for sample in samples])}):
        state = run_pipeline(
            model, target, machine,
            calibration=given, numbers=numbers_of("int8"), until="quantise",
        )  # fmt: skip
        factors = {name: array.tolist() for name, array in (state.factors or {}).items()}
        found.append((factors, str(state.network)))
    assert len(found[0][0]) >= 2
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_free_dims_keep_the_factors(tmp_path: Path) -> None:
    model, fixed = tmp_path / "open.onnx", tmp_path / "fixed.onnx"
    transformer(model, "batch")
    transformer(fixed)
    samples, x = drawn(1, 4), drawn(50, 1)[0]
    opened = tilewright.compile(model, "cpu", numbers="int8", calibration=samples)
    settled = tilewright.compile(fixed, "cpu", numbers="int8", calibration=samples)
    assert np.array_equal(opened.run(x)["y"], settled.run(x)["y"])
