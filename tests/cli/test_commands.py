"""The commands as a user calls them: results, JSON, and refusals with exit status 2."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from tests.slow import but_fast
from tilewright.cli.main import app

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(*arguments: object) -> Any:
    """The JSON that a successful command prints."""
    result = call(
        *arguments, "--json", *(() if arguments[0] in ("targets", "cache") else ("--quiet",))
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def answer_of(*arguments: object) -> Any:
    """The JSON of a command that shows no progress."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: object) -> list[dict[str, str]]:
    """The problems of a refused command: exit status 2, one clear error, no traceback."""
    result = call(*arguments, "--json")
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return json.loads(result.stdout)["errors"]


@pytest.mark.parametrize("target", but_fast(["cpu", "shidiannao"], ["cpu"]))
def test_run_prints_what_machines_read(target: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    found = answer("run", LENET, "-t", target, "--random", 3, "--check", "--trace", trace)
    assert found["target"] == target
    assert found["outputs"] == [{"name": "probabilities", "shape": [1, 10], "dtype": "float32"}]
    assert found["check"]["passed"] and found["check"]["mismatches"] == 0
    profile = found["profile"]
    assert ("cycles" in profile) == (target != "cpu")
    assert ("seconds" in profile) == (target == "cpu")
    for key in (
        "clock_hz",
        "bound_cycles",
        "granule_bound_cycles",
        "efficiency",
        "peak_memory_bytes",
        "lower_bound_memory_bytes",
    ):
        assert profile[key] > 0, key
    assert profile["peak_memory_bytes"] >= profile["lower_bound_memory_bytes"]
    assert "dram_bytes" in profile and "engines" in profile
    nodes = [node for kernel in profile["kernels"] for node in kernel["nodes"]]
    assert {"conv1", "pool1", "fc3", "softmax"} <= set(nodes)
    events = json.loads(trace.read_text())
    assert "conv1" in trace.read_text() and events


@pytest.mark.slow
def test_package_runs_like_the_model(tmp_path: Path) -> None:
    package = tmp_path / "package"
    image = np.random.default_rng(5).random((1, 1, 32, 32), np.float32)
    np.save(tmp_path / "image.npy", image)
    given = f"image={tmp_path / 'image.npy'}"
    answer("compile", LENET, "-t", "shidiannao", "-o", package)
    for number, source in enumerate((package, LENET)):
        extra = () if source == package else ("-t", "shidiannao")
        answer("run", source, *extra, "--input", given, "-o", tmp_path / f"{number}.npz")
    with np.load(tmp_path / "0.npz") as one, np.load(tmp_path / "1.npz") as two:
        assert np.array_equal(one["probabilities"], two["probabilities"])


@pytest.mark.slow
def test_machine_values_change_the_plan() -> None:
    def total(*options: object) -> float:
        rows = answer("plan", LENET, "-t", "shidiannao", *options)["kernels"]
        return sum(row["predicted_cycles"] for row in rows if row["engine"] == "accelerator")

    assert total("--set", "memory.dram.bytes_per_cycle=8") > total()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cambricon", "cambricon-x"])
def test_packages_predict_what_is_simulated(target: str, tmp_path: Path) -> None:
    """A package counts the overlap of its kernels, which a plan of kernels alone cannot."""
    package = answer("compile", LENET, "-t", target, "-o", tmp_path / "package")["plan"]
    found = answer("run", tmp_path / "package", "--random", 1)["profile"]
    assert package["predicted_cycles"] == pytest.approx(found["cycles"], rel=0.01)


@pytest.mark.slow
def test_planners_are_chosen_and_compared() -> None:
    rows = answer("plan", LENET, "-t", "shidiannao", "--planner", "greedy", "--beside", "exact")
    planned = [row for row in rows["kernels"] if row["engine"] == "accelerator"]
    assert len(planned) == 8
    for row in planned:
        assert (row["planner"], row["beside"]["planner"]) == ("greedy", "exact")
        assert row["predicted_cycles"] > 0 and row["candidates"] > 0
    text = call("plan", LENET, "-t", "shidiannao", "--planner", "greedy", "--beside", "exact", "-q")
    assert "greedy beside exact:" in text.output
    found = answer(
        "run", LENET, "-t", "shidiannao", "--planner", "greedy{buffers=1}", "--random", 1, "--check"
    )
    assert found["check"]["passed"] and found["check"]["exact"]
    assert refused("plan", LENET, "-t", "shidiannao", "--beside", "guess")[0]["code"] == (
        "option-planner"
    )
    assert refused("run", LENET, "--planner", "greedy")[0]["code"] == "option-planner"


@pytest.mark.slow
def test_exact_convolution_changes_the_method(tmp_path: Path) -> None:
    weight = np.random.default_rng(1).standard_normal((64, 64, 3, 3)).astype(np.float32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "net",
        [value("x", 1, (1, 64, 28, 28))],
        [value("y", 1, (1, 64, 28, 28))],
        [numpy_helper.from_array(weight, "w")],
    )
    model = tmp_path / "conv.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model
    )

    def rounds_more(*arguments: object) -> bool:
        """Whether it takes Winograd's method or, on processors with matrix tiles, pieces."""
        rows = answer(*arguments)["profile"]["kernels"]
        return any(row["schedule"].startswith(("winograd", "conv_pieces ")) for row in rows)

    assert rounds_more("run", model, "--random", 1, "--check")
    assert not rounds_more("run", model, "--random", 1, "--check", "--exact-convolution")
    assert not rounds_more("bench", model, "--random", 1, "--repeat", 1, "--exact-convolution")
    package = tmp_path / "package"
    answer("compile", model, "-o", package, "--exact-convolution")
    assert not rounds_more("run", package, "--random", 1)
    assert refused("run", package, "--exact-convolution")[0]["code"] == "option-package"


def test_targets_lists_them() -> None:
    names = [row["name"] for row in answer("targets")]
    assert {"cpu", "cambricon-x", "generic"} <= set(names)
    assert answer("targets", "cambricon-x")["machine"]["clock_hz"] == 1e9


def test_refusals(tmp_path: Path) -> None:
    missing = tmp_path / "missing.onnx"
    assert refused("run", missing)[0]["code"].startswith("onnx-")
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"\x08\x07garbage" * 9)
    assert refused("compile", garbage, "-o", tmp_path / "out")[0]["code"].startswith("onnx-")
    assert not (tmp_path / "out").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["garbage.onnx"]
    assert refused("run", LENET, "-t", "nonsense")[0]["code"] == "target-unknown"
    assert refused("plan", LENET, "--set", "memory.sb.bytes=-1")
    assert refused("plan", LENET, "--set", "memory.sb.bytes=__import__('os')")
    assert refused("plan", LENET, "--set", "memory.nowhere.bytes=1")
    assert refused("run", LENET, "--input", "nobody=x.npy")[0]["code"] == "input-file"
    np.save(tmp_path / "small.npy", np.zeros((1, 1, 8, 8), np.float32))
    wrong = refused("run", LENET, "--input", f"image={tmp_path / 'small.npy'}")[0]
    assert wrong["code"] == "input-shape" and "32" in wrong["reason"]
    np.save(tmp_path / "double.npy", np.zeros((1, 1, 32, 32)))
    assert refused("run", LENET, "--input", f"image={tmp_path / 'double.npy'}")
    np.save(tmp_path / "object.npy", np.array([{}], object), allow_pickle=True)
    assert refused("run", LENET, "--input", f"image={tmp_path / 'object.npy'}")


@pytest.mark.slow
def test_damaged_package_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "package"
    answer("compile", LENET, "-t", "shidiannao", "-o", package)
    words = next(package.glob("program/*.bin"))
    words.write_bytes(words.read_bytes()[:-1] + b"\xff")
    assert refused("run", package)[0]["code"] == "package-damaged"
    words.unlink()
    assert refused("run", package)[0]["code"] == "package-damaged"
    (package / "manifest.json").write_text("{}")
    assert refused("run", package)[0]["code"] == "package-invalid"
    (package / "manifest.json").unlink()
    assert refused("run", package)[0]["code"] == "package-missing"


def test_output_that_is_no_package_is_kept(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    assert refused("compile", LENET, "-o", tmp_path)[0]["code"] == "output-exists"
    assert (tmp_path / "precious.txt").read_text() == "keep me"


@pytest.mark.slow
def test_dumps_are_numbered_and_read_back(tmp_path: Path) -> None:
    answer("compile", LENET, "-t", "cambricon-x", "-o", tmp_path / "p", "--dump", tmp_path / "d")
    dumps = sorted((tmp_path / "d").iterdir())
    assert [dump.name[:3] for dump in dumps] == [f"{n:03d}" for n in range(len(dumps))]
    for dump in dumps[:: max(len(dumps) // 6, 1)]:
        result = call("opt", dump, "-t", "cambricon-x")
        assert result.exit_code == 0, f"{dump.name}: {result.output}"


def test_help_shows_an_example() -> None:
    for command in (
        "compile",
        "run",
        "plan",
        "explain",
        "bench",
        "targets",
        "opt",
        "asm",
        "disasm",
    ):
        result = call(command, "--help")
        assert result.exit_code == 0 and "Example: tilewright" in result.output, command


DYNAMIC = Path(__file__).parents[2] / "examples" / "dynamic"


@pytest.mark.slow
def test_packages_with_free_dims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    model, package = DYNAMIC / "pixels.onnx", tmp_path / "package"
    bounds = ("--shape", "image=n:1..4,3,height,width:4..")
    plan = answer("compile", model, "-t", "shidiannao", "-o", package, *bounds)["plan"]
    assert plan["free"] == {"n": [1, 4], "height": [1, 2**31 - 1], "width": [4, 2**31 - 1]}
    assert "n: 1..4, in image[0]" in call("compile", model, "-o", tmp_path / "p", *bounds).output
    sizes = ("--shape", "height=6", "--shape", "width=8")
    first = call("run", package, *sizes, "--check")
    assert first.exit_code == 0
    assert "n is open and is taken as 1" in first.output
    assert "specialising for n=1, height=6, width=8 ..." in first.output
    assert "specialising" not in call("run", package, *sizes, "--check").output
    np.save(tmp_path / "image.npy", np.ones((2, 3, 5, 4), np.float32))
    found = answer("run", package, "--input", tmp_path / "image.npy")
    assert found["outputs"][0]["shape"] == [2, 2, 5, 4]
    assert answer("bench", package, "--shape", "image=2x3x5x4")["simulated"]
    used = answer("cache")
    assert (used["entries"], used["directory"]) == (2, str(tmp_path / "cache"))
    assert used["bytes"] > 0
    assert refused("run", package)[0]["code"] == "shape-open"
    assert refused("run", package, *sizes, "--shape", "n=5")[0]["code"] == "shape-bounds"
    assert refused("run", package, "--shape", "image=2x3x5")[0]["code"] == "shape-rank"
    assert refused("run", package, "-t", "cpu")[0]["code"] == "option-package"
    np.save(tmp_path / "image.npy", np.ones((9, 3, 5, 4), np.float32))
    given = ("--input", tmp_path / "image.npy")
    assert refused("run", package, *given)[0]["code"] == "shape-bounds"
    monkeypatch.setenv("TILEWRIGHT_CACHE_ENTRIES", "many")
    assert refused("cache")[0]["code"] == "option-cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE_ENTRIES", "1")
    answer("cache", "--clear")
    assert answer("cache")["entries"] == 0


@pytest.mark.slow
def test_models_with_free_dims_take_sizes_from_inputs_and_options(tmp_path: Path) -> None:
    model = DYNAMIC / "pixels.onnx"
    np.save(tmp_path / "image.npy", np.ones((2, 3, 5, 4), np.float32))
    target = ("-t", "shidiannao")
    found = answer("run", model, *target, "--input", tmp_path / "image.npy", "--check")
    assert found["outputs"][0]["shape"] == [2, 2, 5, 4] and found["check"]["passed"]
    found = answer("run", model, *target, "--shape", "image=_,3,6..6,7")
    assert found["outputs"][0]["shape"] == [1, 2, 6, 7]
    assert answer("diff", model, *target, "--input", tmp_path / "image.npy")["passed"]
    for command in ("plan", "explain", "memory", "diff", "run", "bench"):
        problem = refused(command, model, *target)[0]
        assert problem["code"] in ("shape-open", "onnx-shape") and "--shape" in problem["help"]
        if command in ("plan", "explain", "memory"):
            assert answer(command, model, *target, "--shape", "height=6", "--shape", "width=7")
    assert refused("run", model, "--shape", "height")[0]["code"] == "option-shape"
    assert refused("run", model, "--shape", "height=2=3")[0]["code"] == "shape-unknown"
    assert refused("run", model, "--shape", "depth=2")[0]["code"] == "shape-unknown"
    assert refused("run", LENET, "--shape", "image=n,1,32,32")[0]["code"] == "shape-fixed"


def test_disassembly_needs_sizes(tmp_path: Path) -> None:
    package = tmp_path / "package"
    answer("compile", DYNAMIC / "pixels.onnx", "-t", "cambricon-x", "-o", package)
    found = call("disasm", package)
    assert found.exit_code == 2 and "shape-open" in found.output


def test_hlal_programs_are_assembled_run_and_traced(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "hlal" / "own_block.hlal"
    words, again, text = (tmp_path / name for name in ("a.bin", "b.bin", "a.hlal"))
    made = answer_of("asm", program, "-o", words, "--listing", tmp_path / "a.txt")
    assert [item["name"] for item in made["data"]] == ["input", "weight", "output"]
    assert words.stat().st_size == 8 * made["instructions"]
    assert answer_of("disasm", words, "-t", "cambricon", "-o", text)["output"] == str(text)
    assert answer_of("disasm", words, "-t", "cambricon")["text"] == text.read_text()
    # What does not fit says whose words these were taken for.
    (problem,) = refused("disasm", words)
    assert "cambricon-x" in problem["help"] and "--target" in problem["help"]
    answer_of("asm", text, "-o", again)
    assert again.read_bytes() == words.read_bytes()
    results = tmp_path / "results.npz"
    ran = answer_of("run", program, "--random", 1, "--check", "-o", results)
    assert ran["cycles"] > 0 and ran["races"] == []
    with np.load(results) as arrays:
        assert arrays["output"].shape == (1, 1, 1, 64) and arrays["output"].any()
    traced = answer_of("trace", program, "--random", 1, "-o", tmp_path / "t.json")
    assert traced["events"] == len(
        [
            event
            for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
            if "command" in event.get("args", {})
        ]
    )


def test_hlal_programs_are_refused_with_lines(tmp_path: Path) -> None:
    program = tmp_path / "bad.hlal"
    program.write_text(".code\n smove $R1, #1\n vlod $R1\n again: j again\n")
    (problem,) = refused("asm", program)
    assert problem["code"] == "hlal-name" and problem["where"] == f"{program}:3:2"
    program.write_text(".code\n again: j again\n")
    (problem,) = refused("run", program, "--limit", 100)
    assert problem["code"] == "program-endless" and f"{program}:2:9" in problem["where"]
    (problem,) = refused("run", program, "--target", "cpu")
    assert problem["code"] == "hlal-target"
    (problem,) = refused("run", tmp_path / "none.hlal")
    assert problem["code"] == "input-file"
    for options in (("run", program, "--shape", "x=1"), ("run", LENET, "--no-barriers")):
        (problem,) = refused(*options)
        assert problem["code"] == "option-hlal"


def test_asm_counts_instructions_not_words(tmp_path: Path) -> None:
    """Instructions of the CNN core have several words each."""
    text, words = tmp_path / "a.asm", tmp_path / "a.bin"
    text.write_text("load put=load+save, channel=24\nsave take=load+save, channel=24\nend\n")
    answer = answer_of("asm", text, "-t", "zu2", "-o", words)
    assert answer["instructions"] == 3 and answer["bytes"] == words.stat().st_size > 3 * 4


@pytest.mark.parametrize("command", ["run", "bench", "diff", "replay", "trace"])
def test_a_seed_is_no_negative_number(command: str) -> None:
    result = call(command, LENET, "--random", -1)
    assert result.exit_code == 2 and "--random" in result.output


@pytest.mark.slow
def test_plan_and_package_predict_the_same(tmp_path: Path) -> None:
    planned = answer("plan", LENET, "-t", "zu2")["kernels"]
    answer("compile", LENET, "-t", "zu2", "-o", tmp_path / "package")
    entries = json.loads((tmp_path / "package/manifest.json").read_text())["kernels"]
    ours = {row["name"]: row["timed_cycles"] for row in planned if row["engine"] == "accelerator"}
    assert ours == {row["name"]: row["predicted_cycles"] for row in entries if row["schedule"]}


def one_operation(folder: Path, operation: str, name: str) -> Path:
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in (name, "y")]
    node = helper.make_node(operation, [name], ["y"])
    path = folder / f"{operation}.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], operation, given[:1], given[1:])), path)
    return path


def test_a_model_that_cannot_be_compared_is_refused_before_the_run(tmp_path: Path) -> None:
    model, package = one_operation(tmp_path, "Exp", "x"), tmp_path / "package"
    answer("compile", model, "-t", "cpu", "-o", package)
    other = one_operation(tmp_path, "Neg", "z")
    run = ("run", package, "--random", "1", "--check", "--quiet", "--model")
    assert call(*run, model).exit_code == 0
    for wrong, why in ((other, "its inputs are z"), (tmp_path / "none.onnx", "no such file")):
        result = call(*run, wrong)
        assert result.exit_code == 2 and why in result.stderr and not result.stdout


def test_infinite_results_are_warned_of(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.full((2, 3), 200, np.float32))
    run = ("run", one_operation(tmp_path, "Exp", "x"), "-t", "cpu", "--quiet", "--input")
    assert "warning: not all of y is finite" in call(*run, tmp_path / "x.npz").output
