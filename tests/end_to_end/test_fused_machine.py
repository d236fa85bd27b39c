"""Networks on a machine whose kernels hand on their results on the chip."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.end_to_end.end_to_end_models import ROOT, lenet, network, run_checked
from tests.slow import but_fast

FILE = ROOT / "examples" / "machines" / "fused.toml"
MODELS = {
    "lenet5": lenet,
    "squeezenet": lambda: network("squeezenet", 32),
    "mobilenet_v2": lambda: network("mobilenet_v2", 32),
}


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", but_fast(MODELS, ["lenet5"]))
def test_networks_move_less_than_without_fusion(name: str, tmp_path: Path) -> None:
    """Bit for bit, fused and apart; fewer bytes pass main memory, in fewer cycles."""
    text = FILE.read_text()
    maps = "memory.maps = { "
    assert maps in text
    # What stays between kernels would spare the same bytes.
    text = text.replace(maps, f"{maps}resident = [], ")
    together, plain = tmp_path / "fused.toml", tmp_path / "apart.toml"
    together.write_text(text)
    plain.write_text(text[: text.index("# Kernels that may hand on")] + "[fusion]\n")
    fused = run_checked(MODELS[name](), str(together), tmp_path)
    apart = run_checked(MODELS[name](), str(plain), tmp_path)
    kernels, others = ([k for k in run.profile.kernels if not k.on_host] for run in (fused, apart))
    assert len(kernels) < len(others)
    one, other = fused.profile, apart.profile
    assert one.dram_bytes is not None
    assert other.dram_bytes is not None
    assert one.dram_bytes < other.dram_bytes
    assert one.cycles < other.cycles


SCORES = ["plain", "scaled", "masked", "scaled and masked"]


@pytest.mark.parametrize("scores", but_fast(SCORES, ["scaled and masked"]))
def test_attention_in_float16_over_two_levels_of_memory(scores: str, tmp_path: Path) -> None:
    """Products, softmax and what stands between are one kernel: scores pass no main memory."""
    heads, rows, width = 2, 48, 32
    shape, names = (heads, rows, width), ["scores"]
    nodes = [helper.make_node("MatMul", ["q", "k"], ["scores"], name="scores")]
    sizes = {"q": shape, "k": (heads, width, rows), "v": shape}
    if "scaled" in scores:
        nodes.append(helper.make_node("Mul", [names[-1], "scale"], ["scaled"], name="scaled"))
        names.append("scaled")
    if "masked" in scores:
        nodes.append(helper.make_node("Add", [names[-1], "mask"], ["masked"], name="masked"))
        names.append("masked")
        sizes["mask"] = (1, 1, rows)
    nodes += [
        helper.make_node("Softmax", [names[-1]], ["weights"], name="weights", axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"], name="result"),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    scale = [helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1875])]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, scale)
    path = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    executable = tilewright.compile(path, str(FILE.with_name("five-buffers.toml")))
    random = np.random.default_rng(5)
    given = {n: random.uniform(-1, 1, s).astype(np.float32) for n, s in sizes.items()}
    found = executable.run(given, check_races=True)
    assert executable.check(given, found).equal
    (kernel,) = [row for row in executable.manifest.kernels if "scores" in row.nodes]
    assert {*names, "weights", "result"} <= set(kernel.nodes)
    q, k, v = (given[name].astype(np.float64) for name in ("q", "k", "v"))
    factor = 0.1875 if "scaled" in scores else 1.0
    exponentials = np.exp(factor * (q @ k) + given.get("mask", np.zeros(1)).astype(np.float64))
    wanted = exponentials / exponentials.sum(axis=-1, keepdims=True) @ v
    # Operands, scores and weights are rounded to 11 bits; sums are kept in float32.
    assert np.abs(found["y"] - wanted).max() < 8 * 2.0**-11
