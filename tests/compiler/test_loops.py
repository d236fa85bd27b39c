"""Loops on machines: the body is compiled once, and the rounds give what the model says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import tilewright
from tests.frontends.onnx.loop_models import keyword, loop, model_of, recurrent, scan
from tests.slow import but_fast
from tilewright.cli.main import app
from tilewright.compiler.build import emit
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.errors import TilewrightError
from tilewright.graph.operations import LoopOp
from tilewright.runtime.executable import Executable

ROOT = Path(__file__).parents[2]
NPU, SYSTOLIC, IN_C = (
    str(ROOT / "examples" / "machines" / f"{name}.toml")
    for name in ("small-npu", "systolic-int8", "small-npu-c")
)
MACHINES = (NPU, SYSTOLIC, IN_C, "cambricon-x", "cambricon", "zu2", "ascend310")
MODELS = {
    "gru": recurrent("GRU", length=5),
    "lstm": recurrent("LSTM", length=5, direction="bidirectional", lengths=True, batch=2),
    "rnn": recurrent("RNN", length=5, states=True, direction="reverse"),
    "scan": scan(length=4, backwards=True),
    "loop": loop(rounds=4, nested=True),
}
CASES = [(target, name) for name in MODELS for target in MACHINES]


def drawn(made: Executable | ModelProto, seed: int = 5) -> dict[str, np.ndarray]:
    """Inputs of a package or a model: lengths differ, numbers are random."""
    random, arrays = np.random.default_rng(seed), dict[str, np.ndarray]()
    if isinstance(made, Executable):
        kinds = {info.name: (info.shape, np.dtype(info.dtype)) for info in made.inputs}
    else:
        types = {value.name: value.type.tensor_type for value in made.graph.input}
        kinds = {
            name: (
                [dim.dim_value for dim in kind.shape.dim],
                helper.tensor_dtype_to_np_dtype(kind.elem_type),
            )
            for name, kind in types.items()
        }
    for name, (sizes, dtype) in kinds.items():
        shape = [int(size) for size in sizes]
        numbers = np.arange(*shape) * 3 + 1 if dtype.kind == "i" else random.standard_normal(shape)
        arrays[name] = numbers.astype(dtype)
    return arrays


def saved(model: ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def checked(made: Executable) -> dict[str, np.ndarray]:
    """The outputs of a run, which are what the interpreter computes and close to the model's."""
    arrays = drawn(made)
    outputs = made.run(arrays, check_races=True)
    check = made.check(arrays, outputs)
    assert check.passed, str(check)
    assert not check.exact or check.mismatches == 0
    return outputs


@pytest.mark.parametrize(
    "case", but_fast(CASES, [(NPU, "gru"), ("cambricon-x", "loop"), ("zu2", "scan")])
)
def test_rounds_of_a_body_give_what_the_model_says(case: tuple[str, str], tmp_path: Path) -> None:
    target, name = case
    path = saved(MODELS[name], tmp_path / "model.onnx")
    # The input of the run is none of the samples.
    samples = [drawn(MODELS[name], seed) for seed in range(100, 116)]
    made = tilewright.compile(path, target, directory=tmp_path / "package", calibration=samples)
    looped = [row for row in made.manifest.kernels if row.rounds > 1]
    assert {row.rounds for row in looped} <= {4, 5, 20}
    # Without products there is nothing for a unit that multiplies; zu2 adds images alone.
    alone = name == "loop" and target in (SYSTOLIC, "zu2")
    assert alone or any(row.engine == "accelerator" for row in looped)
    checked(made)
    profile = made.profile
    assert profile.cycles is not None
    total = sum(kernel.cycles or 0.0 for kernel in profile.kernels)
    assert total == pytest.approx(profile.cycles, rel=1e-3, abs=100)
    assert [kernel.symbol for kernel in profile.kernels] == [
        row.name for row in made.manifest.kernels
    ]


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", [NPU, SYSTOLIC, "cambricon-x", "zu2", "ascend310"])
def test_a_loop_and_its_rounds_in_line_mean_the_same(target: str, tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    made = tilewright.compile(path, target, directory=tmp_path / "package")
    chosen, machine = resolve(target)
    state = run_pipeline(path, chosen, machine)
    (tmp_path / "unrolled").mkdir()
    emit(state, tmp_path / "unrolled")
    unrolled = tilewright.Executable.load(tmp_path / "unrolled")
    assert not any(row.rounds > 1 for row in unrolled.manifest.kernels)
    arrays = drawn(made)
    ours, theirs = made.run(arrays), unrolled.run(arrays)
    wanted = ort.InferenceSession(str(path)).run(None, arrays)
    # One format holds for all rounds, where those in line have one each by fewer numbers.
    for (name, array), want in zip(ours.items(), wanted, strict=True):
        unit = 2.0**-4 if machine.element in ("int8", "fixed8") else 2.0**-9
        error = np.abs(theirs[name] - want).max() + unit
        np.testing.assert_allclose(array, want, atol=error, rtol=0, err_msg=name)


def test_kernels_do_not_grow_with_the_rounds(tmp_path: Path) -> None:
    counts: set[int] = set()
    for length in (5, 12):
        path = saved(recurrent("GRU", length=length), tmp_path / f"{length}.onnx")
        made = tilewright.compile(path, NPU, directory=tmp_path / f"package{length}")
        counts.add(len(made.manifest.kernels))
        assert made.summary()["predicted_cycles"] > 0
    assert len(counts) == 1


@pytest.mark.parametrize("target", but_fast(MACHINES, [NPU]))
def test_plan_counts_what_a_run_takes(target: str, tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    result = CliRunner().invoke(app, ["plan", str(path), "-t", target, "--json", "--quiet"])
    rows = json.loads(result.stdout)["kernels"]
    made = tilewright.compile(path, target, directory=tmp_path / "package")
    assert [row["name"] for row in rows] == [row.name for row in made.manifest.kernels]
    assert [row.get("rounds", 1) for row in rows] == [row.rounds for row in made.manifest.kernels]
    timed = [row["timed_cycles"] or row["predicted_cycles"] for row in rows if "text" in row]
    predicted = [row.predicted_cycles for row in made.manifest.kernels if row.schedule]
    assert timed == predicted
    made.run(drawn(made))
    assert sum(timed) == pytest.approx(made.profile.cycles, rel=0.1)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", MACHINES)
def test_a_keyword_spotter_is_tens_of_kernels(target: str, tmp_path: Path) -> None:
    made = tilewright.compile(
        saved(keyword(), tmp_path / "keyword.onnx"), target, directory=tmp_path / "package"
    )
    assert len(made.manifest.kernels) < 80
    checked(made)


def test_where_no_loop_can_run_rounds_are_unrolled(tmp_path: Path) -> None:
    chosen, machine = resolve("ascend910b")
    state = run_pipeline(
        saved(MODELS["rnn"], tmp_path / "model.onnx"), chosen, machine, until="kernels", loops=True
    )
    assert not any(isinstance(op, LoopOp) for op in state.network.walk())


def test_explain_names_the_kernels_of_a_body(tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    result = CliRunner().invoke(app, ["explain", str(path), "-t", NPU, "--quiet", "--json"])
    (node,) = json.loads(result.stdout)["nodes"]
    assert any("." in name for name in node["kernels"])


def test_a_package_keeps_its_loops(tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    made = tilewright.compile(path, "cambricon-x", directory=tmp_path / "package")
    outputs = made.run(drawn(made))
    again = tilewright.Executable.load(tmp_path / "package")
    for name, array in again.run(drawn(again)).items():
        np.testing.assert_array_equal(array, outputs[name])
    (folder,) = (tmp_path / "package" / "program" / "loops").iterdir()
    words = folder / "program" / "program.bin"
    words.write_bytes(words.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(TilewrightError, match="has changed"):
        tilewright.Executable.load(tmp_path / "package")


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    for name in ("one", "two"):
        tilewright.compile(path, "cambricon-x", directory=tmp_path / name)
    files = [
        {
            p.relative_to(tmp_path / name): p.read_bytes()
            for p in (tmp_path / name).rglob("*")
            if p.is_file()
        }
        for name in ("one", "two")
    ]
    assert files[0] == files[1]


def quantised_scan() -> ModelProto:
    """A Scan whose body comes quantised: its product is of int8."""
    random = np.random.default_rng(2)
    weights = random.integers(-127, 128, (16, 16)).astype(np.int8)
    stored = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.array(1 / 500, np.float32), "w_scale"),
        numpy_helper.from_array(np.array(1 / 64, np.float32), "scale"),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    body = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["s", "scale", "zero"], ["s_q"], "q"),
            helper.make_node("DequantizeLinear", ["s_q", "scale", "zero"], ["s_d"], "dq"),
            helper.make_node("DequantizeLinear", ["w", "w_scale", "zero"], ["w_d"], "dq_w"),
            helper.make_node("MatMul", ["s_d", "w_d"], ["m"], "product"),
            helper.make_node("QuantizeLinear", ["m", "scale", "zero"], ["m_q"], "q_m"),
            helper.make_node("DequantizeLinear", ["m_q", "scale", "zero"], ["m_d"], "dq_m"),
            helper.make_node("Add", ["m_d", "x"], ["p"], "sum"),
            helper.make_node("Tanh", ["p"], ["s_out"], "function"),
        ],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 16]) for n in ("s", "x")],
        [helper.make_tensor_value_info("s_out", TensorProto.FLOAT, [4, 16])],
    )
    node = helper.make_node("Scan", ["first", "xs"], ["last"], "scan", body=body, num_scan_inputs=1)
    inputs = [
        helper.make_tensor_value_info("first", TensorProto.FLOAT, [4, 16]),
        helper.make_tensor_value_info("xs", TensorProto.FLOAT, [6, 4, 16]),
    ]
    outputs = [helper.make_tensor_value_info("last", TensorProto.FLOAT, None)]
    return model_of(helper.make_graph([node], "quantised", inputs, outputs, stored))


@pytest.mark.parametrize("target", [SYSTOLIC])
def test_a_body_that_comes_quantised_is_computed_in_integers(target: str, tmp_path: Path) -> None:
    path = saved(quantised_scan(), tmp_path / "model.onnx")
    made = tilewright.compile(path, target, directory=tmp_path / "package")
    rows = [row for row in made.manifest.kernels if "scan" in row.nodes]
    assert rows and all(row.rounds == 6 for row in rows)
    assert any(row.engine == "accelerator" for row in rows)
    outputs = checked(made)
    chosen, machine = resolve(target)
    (tmp_path / "unrolled").mkdir()
    emit(run_pipeline(path, chosen, machine), tmp_path / "unrolled")
    unrolled = tilewright.Executable.load(tmp_path / "unrolled")
    for name, array in unrolled.run(drawn(made)).items():
        np.testing.assert_array_equal(array, outputs[name])
    (inner,) = [op for op in made.graph.walk() if isinstance(op, LoopOp)]
    kinds = {str(op.results[0].type) for op in inner.walk() if op.results}
    assert any("i8" in kind for kind in kinds)


def test_a_trace_shows_all_rounds_as_one_bar(tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    made = tilewright.compile(path, "cambricon-x", directory=tmp_path / "package")
    made.run(drawn(made), trace=tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    bars = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    (bar,) = [event for event in bars if "rounds" in event["args"]]
    assert bar["name"].startswith("5 rounds of ") and bar["args"]["rounds"] == 5
    cycles = sum(event["args"]["cycles"] for event in bars)
    assert cycles == pytest.approx(made.profile.cycles, abs=2)
    ends = sorted((event["ts"], event["ts"] + event["dur"]) for event in bars)
    assert all(first[1] <= second[0] + 1e-6 for first, second in itertools.pairwise(ends))


def test_bodies_lie_beside_the_network_in_memory(tmp_path: Path) -> None:
    path = saved(MODELS["gru"], tmp_path / "model.onnx")
    made = tilewright.compile(path, "cambricon-x", directory=tmp_path / "package")
    main = resolve("cambricon-x")[1].main
    (folder,) = (tmp_path / "package" / "program" / "loops").iterdir()
    body = tilewright.Executable.load(folder).manifest.peak_memory_bytes
    room = made.manifest.peak_memory_bytes - body // 4
    assert body < room
    values = {f"memory.{main}.bytes": room}
    with pytest.raises(TilewrightError, match=r"memory-capacity.*bodies of its loops"):
        tilewright.compile(path, "cambricon-x", values=values)
