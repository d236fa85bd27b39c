"""Loops that stay loops: they mean what ONNX Runtime computes, and what writing them out gives."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.frontends.onnx.loop_models import keyword, loop, model_of, recurrent, scan
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import NetworkOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operations import LoopOp, parse
from tilewright.graph.passes.unroll_loops import UnrollLoops
from tilewright.ir import Context, to_text
from tilewright.ir.types import Array, element_dtype, shape_of, tensor_type


def loops_of(network: NetworkOp) -> list[LoopOp]:
    """All loops, those in bodies too."""
    return [op for op in network.walk() if isinstance(op, LoopOp)]


def arrays_for(network: NetworkOp) -> dict[str, Array]:
    """Inputs of a network: lengths differ, numbers are random."""
    random, arrays = np.random.default_rng(0), dict[str, Array]()
    for name, value in network.inputs:
        dtype = element_dtype(tensor_type(value).element_type)
        shape = shape_of(value)
        numbers = random.standard_normal(shape) if dtype.kind == "f" else np.arange(*shape) * 3 + 1
        arrays[name] = numbers.astype(dtype)
    return arrays


def compare(model: ModelProto, loops: int, *, runtime: bool = True) -> None:
    """The import with loops is what it is without, to the bit, and what ONNX Runtime computes."""
    kept = import_onnx(model, loops=True)
    plain = import_onnx(model)
    network = network_of(kept.module)
    assert len(loops_of(network)) == loops
    assert not loops_of(network_of(plain.module))
    inputs = arrays_for(network)
    results = interpret(kept.module, kept.weights, inputs)
    for name, array in interpret(plain.module, plain.weights, inputs).items():
        np.testing.assert_array_equal(results[name], array, err_msg=name)
    again = parse(to_text(kept.module))
    assert to_text(again) == to_text(kept.module)
    for name, array in interpret(again, kept.weights, inputs).items():
        np.testing.assert_array_equal(results[name], array, err_msg=name)
    if runtime:
        session = ort.InferenceSession(model.SerializeToString())
        names = [output.name for output in session.get_outputs()]
        for name, array in zip(names, session.run(None, inputs), strict=True):
            np.testing.assert_allclose(results[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


KINDS = ("RNN", "GRU", "LSTM")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_stay_loops(kind: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    compare(recurrent(kind, direction=direction, batch=2, states=True), count)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lengths_of_sequences_are_a_mask_of_each_round(kind: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    compare(recurrent(kind, direction=direction, batch=2, lengths=True), count)


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_cells_stay_loops(kind: str) -> None:
    compare(recurrent(kind, clip=0.4), 1)


def test_the_batch_may_come_first() -> None:
    # ONNX Runtime does not take this layout.
    compare(recurrent("GRU", layout=1, batch=2, states=True), 1, runtime=False)


def test_the_last_state_alone() -> None:
    compare(recurrent("LSTM", rows=False), 1)


def test_few_steps_are_written_out() -> None:
    compare(recurrent("GRU", length=3), 0)


def test_a_keyword_spotter_is_two_loops() -> None:
    compare(keyword(), 2)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 2])
def test_scans_stay_loops(backwards: bool, axis: int) -> None:
    compare(scan(backwards=backwards, axis=axis), 1)


def test_a_loop_of_known_rounds_stays_one() -> None:
    compare(loop(), 1)


def test_loops_lie_in_loops() -> None:
    compare(loop(nested=True), 2)


def test_states_that_no_round_changes_are_not_carried() -> None:
    (op,) = loops_of(network_of(import_onnx(loop(), loops=True).module))
    assert op.states == 1


UNROLLED = [
    *(recurrent(kind, direction="bidirectional", batch=2, states=True) for kind in KINDS),
    recurrent("GRU", lengths=True, batch=2),
    scan(backwards=True, axis=2),
    loop(),
    loop(nested=True),
]


@pytest.mark.parametrize("model", UNROLLED, ids=range(len(UNROLLED)))
def test_unrolled_loops_mean_the_same(model: ModelProto) -> None:
    imported = import_onnx(model, loops=True)
    network = network_of(imported.module)
    inputs = arrays_for(network)
    expected = interpret(imported.module, imported.weights, inputs)
    UnrollLoops().apply(Context(), imported.module)
    imported.module.verify()
    assert not loops_of(network)
    for name, array in interpret(imported.module, imported.weights, inputs).items():
        np.testing.assert_array_equal(expected[name], array, err_msg=name)


def test_a_quantised_lstm_keeps_its_integers_in_the_body() -> None:
    random = np.random.default_rng(4)
    kept = {
        "w": random.integers(0, 256, (1, 3, 16)).astype(np.uint8),
        "r": random.integers(0, 256, (1, 4, 16)).astype(np.uint8),
        "scale": np.full(1, 0.01, np.float32),
        "zero": np.full(1, 128, np.uint8),
    }
    names = ["x", "w", "r", "", "", "", "", "", "scale", "zero", "scale", "zero"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y"], "lstm", domain="com.microsoft", hidden_size=4
    )
    graph = helper.make_graph(
        [node],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 1, 1, 4])],
        [numpy_helper.from_array(array, name) for name, array in kept.items()],
    )
    model = model_of(graph)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compare(model, 1, runtime=False)
    (op,) = loops_of(network_of(import_onnx(model, loops=True).module))
    kinds = {str(inner.results[0].type) for inner in op.walk() if inner.results}
    assert any("ui8" in kind for kind in kinds) and any("i32" in kind for kind in kinds)
