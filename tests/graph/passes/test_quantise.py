"""quantise: where integers appear, which scales they have, how close they come."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from tests.graph.passes.pass_networks import (
    Array,
    Builder,
    accelerator,
    assert_same,
    context,
    evaluate,
    inputs_of,
    random_network,
)
from tests.slow import but_fast
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.integer_sites import sites_of
from tilewright.graph.passes.quantise import Quantise, check_nodes, layers_of
from tilewright.graph.passes.simplify import Simplify
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import element_name, shape_of, tensor_type
from tilewright.numbers.calibration import observed_ranges, samples_of

FLOAT = accelerator()


def quantised(
    module: ModuleOp,
    store: Weights,
    numbers: str,
    samples: list[dict[str, Array]],
    **options: object,
) -> ModuleOp:
    ranges = observed_ranges(module, store, samples_of(network_of(module), samples))
    Quantise(numbers, **options).apply(context(FLOAT, store, ranges=ranges), module)
    return module


def operations(module: ModuleOp, name: str) -> Iterator[Operation]:
    for op in network_of(module).block.ops:
        if isinstance(op, Operation) and op.operation == name:
            yield op


def error(found: list[Array], wanted: list[Array]) -> float:
    worst = 0.0
    for got, want in zip(found, wanted, strict=True):
        if want.dtype.kind == "f":
            worst = max(worst, float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))))
    return worst


SHORT = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

LIMITS = {
    "int8": 0.12,
    "int8-power-of-two": 0.25,
    "fixed16": 1e-3,
    "float16": 4e-3,
    "bfloat16": 4e-2,
}


@pytest.mark.parametrize("numbers", LIMITS)
@pytest.mark.parametrize("seed", but_fast(range(12), range(2)))
def test_random_networks_stay_close(numbers: str, seed: int) -> None:
    module, store = random_network(seed)
    samples = [inputs_of(module, 100 + i) for i in range(3)]
    held_out = inputs_of(module, 7)
    wanted = evaluate(module, store, held_out)
    twin = module.clone()
    quantised(module, store, numbers, samples)
    found = evaluate(module, store, held_out)
    assert error(found, wanted) < LIMITS[numbers]
    quantised(twin, store, numbers, samples)
    assert str(twin) == str(module)


def residual_network() -> tuple[Builder, ModuleOp]:
    """Two convolutions with activations, a pool, a residual sum, a joined pair, a classifier."""
    b = Builder(3, image=(1, 3, 12, 12))
    x = b.op("relu", b.conv(b.inputs["image"], 8, pads=(1, 1, 1, 1)), node="relu_a")
    x = b.op("max_pool", x, kernel=(2, 2), strides=(2, 2), node="pool")
    y = b.conv(x, 8, pads=(1, 1, 1, 1), group=8)
    s = b.op("relu", b.op("add", y, x, node="sum"), node="relu_b")
    both = b.op("concat", s, x, axis=1, node="both")
    z = b.conv(both, 4, 1, bias=False)
    flat = b.op("reshape", z, shape=(1, 144), node="flat")
    scores = b.product(flat, 5, transpose_b=True)
    return b, b.finish(b.op("softmax", scores, axis=1, node="softmax"))


def test_what_products_read_is_integer_and_nothing_else() -> None:
    _, module = residual_network()
    network = network_of(module)
    sites = sites_of(network)
    names = {op.node_name for op in sites.integer}
    assert {"relu_a", "pool", "sum", "relu_b", "both", "flat"} <= names
    assert "softmax" not in names
    by_node = {op.node_name: op for op in network.block.ops if isinstance(op, Operation)}
    quantised_values = {by_node[n].result for n in ("relu_a", "pool", "relu_b", "both", "flat")}
    assert quantised_values <= set(sites.roots)
    # Within a product and its activation nothing is rounded, and floats read exact sums.
    assert by_node["sum"].result not in sites.roots
    assert by_node["relu_a"].inputs[0] not in sites.roots
    assert by_node["softmax"].inputs[0] not in sites.roots
    # What only chooses among elements keeps their scale.
    assert sites.roots[by_node["pool"].result] is by_node["relu_a"].result
    assert sites.roots[by_node["flat"].result] is by_node["flat"].inputs[0]
    assert list(layers_of(module, "int8")) == [
        op.node_name
        for op in network.block.ops
        if isinstance(op, Operation) and op.operation in ("conv", "matmul", "add", "concat")
    ]


def test_sums_that_only_floats_read_stay_floats() -> None:
    b = Builder(4, x=(1, 6, 16))
    y = b.product(b.inputs["x"], 16)
    s = b.op("add", y, b.inputs["x"], node="sum")
    module = b.finish(b.op("tanh", s))
    sites = sites_of(network_of(module))
    assert [op.operation for op in sites.integer] == ["matmul"]
    quantised(module, b.store, "int8", [inputs_of(module, 1)])
    total = next(operations(module, "add"))
    # The input is the float's own beside the product's rounded one.
    assert total.inputs[1] is network_of(module).block.args[0]


def constants(module: ModuleOp, op: Operation, store: Weights) -> list[Array]:
    """Integers behind the dequantised constant operands of an operation."""

    def source(value: SSAValue) -> Array | None:
        while isinstance(value.owner, Operation):
            value = value.owner.inputs[0]
        return store.get(value.owner.symbol.data) if isinstance(value.owner, WeightOp) else None

    return [array for value in op.inputs if (array := source(value)) is not None]


def test_weights_have_a_scale_for_each_channel_and_biases_32_bits() -> None:
    b, module = residual_network()
    quantised(module, b.store, "int8", [inputs_of(module, i) for i in range(2)])
    for op in (*operations(module, "conv"), *operations(module, "matmul")):
        weight, *bias = constants(module, op, b.store)
        assert weight.dtype == np.int8
        magnitudes = np.abs(weight.astype(int)).reshape(weight.shape[0], -1).max(axis=1)
        assert magnitudes.tolist() == [127] * len(weight)
        assert [array.dtype for array in bias] == [np.int32] * len(bias)


@pytest.mark.parametrize("numbers", ["int8-power-of-two", "fixed16"])
def test_powers_of_two(numbers: str) -> None:
    b, module = residual_network()
    quantised(module, b.store, numbers, [inputs_of(module, 0)])
    for op in (*operations(module, "conv"), *operations(module, "matmul")):
        weight, *_ = constants(module, op, b.store)
        assert weight.dtype == (np.int8 if numbers.startswith("int8") else np.int16)
        scale_owner = op.inputs[1].owner
        assert isinstance(scale_owner, Operation)
        owner = scale_owner.inputs[1].owner
        assert isinstance(owner, WeightOp)
        scale = b.store.get(owner.symbol.data)
        assert scale.size == 1 and float(np.log2(scale.reshape(()))).is_integer()


def test_channels_without_weights_keep_their_bias() -> None:
    b = Builder(1, image=(1, 2, 4, 4))
    weight = np.zeros((3, 2, 1, 1), np.float32)
    weight[1] = 0.5
    weight[2] = 1e-12
    bias = np.array([0.3, 0.3, 7.0], np.float32)
    operands = [b.inputs["image"], b.constant(weight), b.constant(bias)]
    module = b.finish(b.op("relu", b.op("conv", *operands)))
    inputs = inputs_of(module, 2)
    wanted = evaluate(module, b.store, inputs)
    quantised(module, b.store, "int8", [inputs])
    assert_same(wanted, evaluate(module, b.store, inputs), 1e-2)


def test_kept_nodes_stay_floats() -> None:
    b, module = residual_network()
    first = next(operations(module, "conv")).node_name
    quantised(module, b.store, "int8", [inputs_of(module, 0)], keep_float=(first, "sum"))
    conv, total = next(operations(module, "conv")), next(operations(module, "add"))
    assert conv.inputs[0] is network_of(module).block.args[0]
    assert isinstance(conv.inputs[1].owner, WeightOp)
    assert total.result.first_use is not None
    with pytest.raises(TilewrightError, match=r"numbers-keep.*'conv11'.*no such node.*conv1"):
        check_nodes(("conv11",), ["conv1", "conv2", "relu"])


def test_one_layer_alone() -> None:
    b, module = residual_network()
    node = list(operations(module, "conv"))[1].node_name
    quantised(module, b.store, "int8", [inputs_of(module, 0)], only=(node,))
    integers = [
        op
        for op in network_of(module).block.ops
        if isinstance(op, WeightOp) and shape_of(op.result)
        if element_name(tensor_type(op.result).element_type) == "int8"
    ]
    assert len(integers) == 1


def test_biases_join_products_of_any_rank() -> None:
    b = Builder(2, x=(2, 5, 16))
    y = b.product(b.inputs["x"], 8, bias=False)
    y = b.op("add", b.constant(np.arange(8.0).reshape(1, 1, 8)), y)
    z = b.product(y, 8, bias=False)
    z = b.op("add", z, b.constant(np.arange(40.0).reshape(5, 8)))
    module = b.finish(z)
    inputs = inputs_of(module, 0)
    wanted = evaluate(module, b.store, inputs)
    Simplify().apply(context(FLOAT, b.store), module)
    module.verify()
    assert [len(op.inputs) for op in operations(module, "matmul")] == [3, 2]
    assert len(list(operations(module, "add"))) == 1
    assert_same(wanted, evaluate(module, b.store, inputs), 1e-6)


@pytest.mark.parametrize("numbers", ["float16", "bfloat16"])
def test_short_floats_round_every_tensor_and_keep_weights_short(numbers: str) -> None:
    b, module = residual_network()
    inputs = inputs_of(module, 0)
    quantised(module, b.store, numbers, [inputs])
    for op in operations(module, "conv"):
        for value in op.inputs:
            assert isinstance(value.owner, Operation) and value.owner.operation == "cast"
            assert element_name(tensor_type(value.owner.inputs[0]).element_type) == numbers
    result = evaluate(module, b.store, inputs)[0]
    assert np.array_equal(result, result.astype(SHORT[numbers]))


def test_masks_stay_finite_in_float16() -> None:
    b = Builder(0, x=(1, 4))
    masked = b.op("add", b.inputs["x"], b.constant([0, 0, -3.4e38, 0]))
    module = b.finish(b.op("softmax", masked, axis=1))
    inputs = inputs_of(module, 0)
    quantised(module, b.store, "float16", [inputs])
    result = evaluate(module, b.store, inputs)[0]
    assert np.isfinite(result).all() and result[0, 2] == 0


def test_values_without_a_range_are_refused() -> None:
    b, module = residual_network()
    with pytest.raises(TilewrightError) as caught:
        Quantise("int8").apply(context(FLOAT, b.store), module)
    assert {problem.code for problem in caught.value.problems} == {"numbers-range"}
    assert "image" in {problem.where for problem in caught.value.problems}


def test_shapes_are_kept() -> None:
    b, module = residual_network()
    before = [shape_of(op.result) for op in operations(module, "conv")]
    quantised(module, b.store, "int8", [inputs_of(module, 0)])
    assert [shape_of(op.result) for op in operations(module, "conv")] == before
