"""Mixtures of experts and counts of n-grams, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tilewright
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

ROWS, HIDDEN, INNER, EXPERTS = 5, 8, 6, 4

Arrays = dict[str, NDArray[Any]]


def drawn(*shape: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def model(
    operator: str,
    inputs: Arrays,
    stored: Arrays,
    places: list[str],
    domain: str = "com.microsoft",
    **attributes: Any,
) -> ModelProto:
    node = helper.make_node(operator, places, ["y"], domain=domain, **attributes)
    named = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", named, [result], constants)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def check(made: ModelProto, inputs: Arrays, atol: float = 1e-5) -> None:
    (wanted,) = ort.InferenceSession(made.SerializeToString()).run(None, inputs)
    imported = import_onnx(made)
    for got in (
        interpret(imported.module, imported.weights, inputs),
        tilewright.compile(made, "cpu").run(inputs),
    ):
        np.testing.assert_allclose(got["y"], wanted, rtol=1e-5, atol=atol)


ROUTED: Arrays = {"x": drawn(ROWS, HIDDEN, seed=1), "p": drawn(ROWS, EXPERTS, seed=2)}

PLAIN = [
    ("relu", 1, 0, {}),
    ("silu", 2, 1, {}),
    ("gelu", 2, 0, {}),
    ("identity", 3, 1, {}),
    ("swiglu", 2, 1, {"swiglu_fusion": 1}),
    (
        "swiglu", 2, 1,
        {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0,
         "swiglu_limit": 1.0},
    ),
]  # fmt: skip


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("activation", "k", "normal", "more"), PLAIN)
def test_mixtures(activation: str, k: int, normal: int, more: dict[str, Any], biased: bool) -> None:
    width = INNER * (2 if activation == "swiglu" else 1)
    stored: Arrays = {"w1": drawn(EXPERTS, width, HIDDEN, seed=3)}
    stored["w2"] = drawn(EXPERTS, HIDDEN, INNER, seed=4)
    if biased:
        stored |= {"b1": drawn(EXPERTS, width, seed=5), "b2": drawn(EXPERTS, HIDDEN, seed=6)}
    b1, b2 = ("b1", "b2") if biased else ("", "")
    check(
        model(
            "MoE", ROUTED, stored, ["x", "p", "w1", b1, "w2", b2],
            activation_type=activation, k=k, normalize_routing_weights=normal, **more,
        ),
        ROUTED,
    )  # fmt: skip


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("bits", [4, 8])
def test_mixtures_of_short_numbers(bits: int, block: int) -> None:
    hidden, inner = 32, 32
    inputs: Arrays = {"x": drawn(3, hidden, seed=1), "p": drawn(3, EXPERTS, seed=2)}
    random = np.random.default_rng(7)

    def weight(rows: int, columns: int) -> NDArray[np.uint8]:
        return random.integers(0, 256, (EXPERTS, rows, columns * bits // 8)).astype(np.uint8)

    def scale(rows: int, columns: int) -> NDArray[np.float32]:
        shape = (EXPERTS, rows, columns // block) if block else (EXPERTS, rows)
        return random.uniform(0.5, 1, shape).astype(np.float32) / 2**bits

    stored: Arrays = {"w1": weight(2 * inner, hidden), "s1": scale(2 * inner, hidden)}
    stored |= {"w2": weight(hidden, inner), "s2": scale(hidden, inner)}
    check(
        model(
            "QMoE", inputs, stored, ["x", "p", "w1", "s1", "", "w2", "s2"],
            activation_type="swiglu", swiglu_fusion=1, k=2, normalize_routing_weights=1,
            expert_weight_bits=bits, **({"block_size": block} if block else {}),
        ),
        inputs,
        # For these ONNX Runtime rounds the rows to 8 bits, too.
        atol=0.03 if (bits, block) == (8, 16) else 1e-4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"activation_type": "swiglu"}, "swiglu"),
        ({"k": 9}, "9 of 4 experts"),
        ({"use_sparse_mixer": 1}, "sparse mixer"),
    ],
)
def test_mixtures_that_are_refused(change: dict[str, Any], said: str) -> None:
    stored: Arrays = {"w1": drawn(EXPERTS, INNER, HIDDEN, seed=3)}
    stored["w2"] = drawn(EXPERTS, HIDDEN, INNER, seed=4)
    made = model("MoE", ROUTED, stored, ["x", "p", "w1", "", "w2"], **change)
    with pytest.raises(TilewrightError, match=said):
        _ = import_onnx(made)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 0), (1, 3, 2), (2, 3, 1)])
def test_counts_of_grams(mode: str, least: int, most: int, skips: int) -> None:
    pool = [1, 2, 5, *(1, 2), *(2, 1), *(3, 3), *(1, 2, 3), *(4, 1, 1)]
    inputs: Arrays = {"x": np.random.default_rng(8).integers(0, 5, (3, 20))}
    places = [2, 0, 3, 1, 7, 5, 6, 4]
    made = model(
        "TfIdfVectorizer", inputs, {}, ["x"], domain="", mode=mode, min_gram_length=least,
        max_gram_length=most, max_skip_count=skips, ngram_counts=[0, 3, 9], ngram_indexes=places,
        pool_int64s=pool, weights=[float(n) / 2 for n in range(1, 9)],
    )  # fmt: skip
    check(made, inputs)
