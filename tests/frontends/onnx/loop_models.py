"""Recurrent layers and loops as ONNX models, for tests of loops."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

OPSET = 17


def model_of(graph: GraphProto) -> ModelProto:
    """A model of one graph."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 9
    return model


def recurrent(
    kind: str,
    *,
    length: int = 6,
    batch: int = 1,
    features: int = 3,
    hidden: int = 4,
    direction: str = "forward",
    lengths: bool = False,
    states: bool = False,
    rows: bool = True,
    **attributes: object,
) -> ModelProto:
    """One recurrent layer; sequence lengths and first states are inputs, where asked for."""
    random = np.random.default_rng(7)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    count = 2 if direction == "bidirectional" else 1
    layout = attributes.get("layout", 0)

    def constant(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(random.normal(0, 0.5, shape).astype(np.float32), name)

    stored = [
        constant("w", count, gates * hidden, features),
        constant("r", count, gates * hidden, hidden),
        constant("b", count, 2 * gates * hidden),
    ]
    shape = [batch, length, features] if layout else [length, batch, features]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    names = ["x", "w", "r", "b"]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [batch]))
    names.append("lengths" if lengths else "")
    for name in ("h", "c")[: 2 if kind == "LSTM" else 1]:
        if states:
            state = [batch, count, hidden] if layout else [count, batch, hidden]
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, state))
            names.append(name)
    results = ["y" if rows else "", "last"] + (["memory"] if kind == "LSTM" else [])
    node = helper.make_node(
        kind, names, results, kind.lower(), hidden_size=hidden, direction=direction, **attributes
    )
    outputs = [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results if r]
    return model_of(helper.make_graph([node], kind.lower(), inputs, outputs, stored))


def keyword(
    *, steps: int = 49, features: int = 40, hidden: int = 64, layers: int = 2
) -> ModelProto:
    """A keyword spotter: GRU layers over frames, the last state, and twelve scores."""
    random = np.random.default_rng(3)
    stored: list[TensorProto] = []

    def constant(name: str, *shape: int) -> str:
        scale = 1 / np.sqrt(shape[-1])
        array = random.uniform(-scale, scale, shape).astype(np.float32)
        stored.append(numpy_helper.from_array(array, name))
        return name

    nodes = []
    value, width = "frames", features
    for layer in range(layers):
        names = [
            constant(f"w{layer}", 1, 3 * hidden, width),
            constant(f"r{layer}", 1, 3 * hidden, hidden),
            constant(f"b{layer}", 1, 6 * hidden),
        ]
        node = helper.make_node(
            "GRU", [value, *names], [f"y{layer}", f"last{layer}"], f"gru{layer}",
            hidden_size=hidden, linear_before_reset=1,
        )  # fmt: skip
        nodes.append(node)
        stored.append(numpy_helper.from_array(np.array([1], np.int64), f"axes{layer}"))
        squeeze = helper.make_node("Squeeze", [f"y{layer}", f"axes{layer}"], [f"rows{layer}"])
        nodes.append(squeeze)
        value, width = f"rows{layer}", hidden
    nodes = nodes[:-1]
    stored.append(numpy_helper.from_array(np.array([0], np.int64), "first"))
    nodes += [
        helper.make_node("Squeeze", [f"last{layers - 1}", "first"], ["state"], "squeeze"),
        helper.make_node(
            "Gemm", ["state", constant("dense", 12, hidden), constant("bias", 12)], ["scores"],
            "dense", transB=1,
        ),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("frames", TensorProto.FLOAT, [steps, 1, features])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 12])]
    return model_of(helper.make_graph(nodes, "keyword", inputs, outputs, stored))


def scan(*, length: int = 6, backwards: bool = False, axis: int = 0) -> ModelProto:
    """A Scan with one state, two sequences and two collected rows, along several axes."""
    float_ = TensorProto.FLOAT
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s_in", "k"], ["m"], "product"),
            helper.make_node("Add", ["m", "a"], ["p"], "sum"),
            helper.make_node("Tanh", ["p"], ["s_out"], "function"),
            helper.make_node("Mul", ["s_out", "b"], ["row"], "row"),
            helper.make_node("Sub", ["a", "b"], ["other"], "other"),
        ],
        "body",
        [helper.make_tensor_value_info(n, float_, [2, 4]) for n in ("s_in", "a", "b")],
        [helper.make_tensor_value_info(n, float_, [2, 4]) for n in ("s_out", "row", "other")],
    )
    node = helper.make_node(
        "Scan", ["s", "xs", "zs"], ["last", "rows", "others"], "scan", body=body,
        num_scan_inputs=2,
        scan_input_axes=[axis, 1],
        scan_input_directions=[int(backwards), 0],
        scan_output_axes=[1, 0],
        scan_output_directions=[0, int(backwards)],
    )  # fmt: skip
    first = [2, 4]
    first.insert(axis, length)
    inputs = [
        helper.make_tensor_value_info("s", float_, [2, 4]),
        helper.make_tensor_value_info("xs", float_, first),
        helper.make_tensor_value_info("zs", float_, [2, length, 4]),
    ]
    outputs = [helper.make_tensor_value_info(n, float_, None) for n in ("last", "rows", "others")]
    k = np.random.default_rng(1).normal(0, 0.4, (4, 4)).astype(np.float32)
    graph = helper.make_graph([node], "scan", inputs, outputs, [numpy_helper.from_array(k, "k")])
    return model_of(graph)


def loop(*, rounds: int = 6, nested: bool = False) -> ModelProto:
    """A Loop that carries a state and one that never changes, and reads rows by their number."""
    float_ = TensorProto.FLOAT
    nodes = [
        helper.make_node("Gather", ["xs", "i"], ["x"], "row_of_x", axis=0),
        helper.make_node("Mul", ["s_in", "u_in"], ["m"], "scale"),
        helper.make_node("Add", ["m", "x"], ["p"], "sum"),
        helper.make_node("Tanh", ["p"], ["t"], "function"),
        helper.make_node("Identity", ["go"], ["go_out"]),
        helper.make_node("Identity", ["u_in"], ["u_out"]),
    ]
    if nested:
        inner = helper.make_graph(
            [
                helper.make_node("Mul", ["v_in", "u_in"], ["v_scaled"], "inner_scale"),
                helper.make_node("Add", ["v_scaled", "x"], ["v_out"], "inner_sum"),
                helper.make_node("Identity", ["more"], ["more_out"]),
            ],
            "inner",
            [
                helper.make_tensor_value_info("j", TensorProto.INT64, []),
                helper.make_tensor_value_info("more", TensorProto.BOOL, []),
                helper.make_tensor_value_info("v_in", float_, [4]),
            ],
            [
                helper.make_tensor_value_info("more_out", TensorProto.BOOL, []),
                helper.make_tensor_value_info("v_out", float_, [4]),
            ],
        )
        nodes.append(
            helper.make_node("Loop", ["five", "", "t"], ["s_out"], "inner_loop", body=inner)
        )
    else:
        nodes.append(helper.make_node("Identity", ["t"], ["s_out"]))
    nodes.append(helper.make_node("Neg", ["s_out"], ["row"], "row"))
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_in", float_, [4]),
            helper.make_tensor_value_info("u_in", float_, [4]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_out", float_, [4]),
            helper.make_tensor_value_info("u_out", float_, [4]),
            helper.make_tensor_value_info("row", float_, [4]),
        ],
    )
    node = helper.make_node(
        "Loop", ["rounds", "", "s", "u"], ["last", "same", "rows"], "loop", body=body
    )
    stored = [
        numpy_helper.from_array(np.array(rounds, np.int64), "rounds"),
        numpy_helper.from_array(np.array(5, np.int64), "five"),
    ]
    inputs = [
        helper.make_tensor_value_info("s", float_, [4]),
        helper.make_tensor_value_info("u", float_, [4]),
        helper.make_tensor_value_info("xs", float_, [rounds, 4]),
    ]
    outputs = [helper.make_tensor_value_info(n, float_, None) for n in ("last", "same", "rows")]
    return model_of(helper.make_graph([node], "loop", inputs, outputs, stored))
