"""What is no target, no shape, no text and no place: one error each, and nothing half-written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.cli.test_commands import LENET, call, refused
from tilewright.cli.main import app
from tilewright.targets.base import find_target


@pytest.mark.parametrize("name", ["", ".", "..", "../cpu", "/tmp", "CPU", "cpu/", "é", "c" * 300])
def test_names_that_no_target_has(name: str) -> None:
    (problem,) = refused("plan", LENET, "-t", name)
    assert problem["code"] == "target-unknown" and "cambricon-x" in problem["help"]


def test_names_of_machine_files_and_folders_are_no_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem,) = refused("plan", LENET, "-t", tmp_path)
    assert "a directory" in problem["reason"] and "ends in .toml" in problem["help"]
    monkeypatch.chdir(tmp_path)
    (problem,) = refused("plan", LENET, "-t", "simba")
    assert "ends in .toml" in problem["help"]
    monkeypatch.chdir(Path(__file__).parents[2])
    (problem,) = refused("plan", LENET, "-t", "simba")
    assert problem["help"] == "did you mean examples/machines/simba.toml?"


def test_a_package_that_is_not_there_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "lenet-package").mkdir()
    (problem,) = refused("run", tmp_path / "lenet-pakcage")
    assert problem["code"] == "model-missing" and "lenet-package" in problem["help"]
    (problem,) = refused("run", tmp_path / "none" / "package")
    assert problem["code"] == "model-missing" and not problem["help"]


@pytest.mark.parametrize("option", ["=", "x=", ""])
def test_inputs_of_no_file(option: str) -> None:
    (problem,) = refused("run", LENET, "--input", option)
    assert (problem["code"], problem["where"]) == ("option-input", "--input")
    assert repr(option) in problem["reason"]


def test_what_cannot_be_used_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr("tilewright.compiler.api.compile", compile)
    (tmp_path / "file").write_text("")
    (problem,) = refused("compile", LENET, "-o", tmp_path / "file" / "package")
    assert problem["code"] == "output-failed"
    (problem,) = refused("compile", LENET, "-o", tmp_path / "file")
    assert problem["code"] == "output-exists"
    functions = tmp_path / "none.c"
    (problem,) = refused("run", LENET, "-t", "cpu", "--functions", functions)
    assert (problem["code"], problem["where"]) == ("option-functions", str(functions))


def test_a_target_is_found_by_its_folder_as_by_its_entry_point() -> None:
    from tilewright.targets import base

    for name in ("cpu", "cambricon-x", "generic"):
        assert find_target(name) is base._installed_target(name)
    assert find_target("cambricon-s").name == "cambricon-s", "its folder is another target's"
    assert base._own_target("ascend") is None


@pytest.mark.parametrize("dim", ["-1", "+2", "-.5", "--1:1..2"])
def test_numbers_are_no_names_of_dims(dim: str) -> None:
    (problem,) = refused("plan", LENET, "--shape", f"image={dim},1,32,32")
    assert problem["code"] == "shape-form" and repr(dim) in problem["reason"]


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--shape", "image=99999999999,1,32,32", "shape-form"),
        ("--shape", "image=3..1,1,32,32", "shape-bounds"),
        ("--shape", "image=1,1,32", "shape-rank"),
    ],
)
def test_sizes_that_are_none_name_their_input(option: str, value: str, code: str) -> None:
    (problem,) = refused("plan", LENET, option, value)
    assert problem["code"] == code and problem["where"] == "input 'image'"


@pytest.mark.parametrize(
    ("option", "value"), [("--shape", "image=1,1,32,32"), ("--set", "clock_hz=1e9")]
)
def test_what_is_given_twice_is_refused(option: str, value: str) -> None:
    (problem,) = refused("plan", LENET, option, value, option, value)
    assert problem["code"] == f"option{option[1:]}" and "twice" in problem["reason"]


def test_an_input_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 32, 32), np.float32))
    given = f"image={tmp_path / 'x.npy'}"
    (problem,) = refused("run", LENET, "--input", given, "--input", given)
    assert problem["code"] == "option-input" and "twice" in problem["reason"]


PLACES = {
    "run MODEL --input {}": "input-file",
    "run MODEL --functions {}": "option-functions",
    "plan MODEL -t {}.toml": "machine-file",
    "compile MODEL --numbers int8 --calibration {}": "calibration-file",
    "compile MODEL --database {}": "tuning-database",
    "compile MODEL --cpu {}.json": "cpu-calibration",
    "sweep {} -t cambricon-x -o CSV": "model-missing",
    "opt {}": "input-file",
    "asm {} -t cambricon -o OUT": "input-file",
    "disasm {}": "input-file",
    "trace {} --random 1 -o OUT": "input-file",
    "report {}.json -o OUT": "report-run",
    "report MODEL --sweep {}.csv -o OUT": "report-sweep",
    "import-machine {} -o TOML": "machine-import",
    "replay {}.onnx": "reference-model",
}


@pytest.mark.parametrize("command", PLACES)
def test_a_file_that_is_not_there_is_told_with_its_neighbour(command: str, tmp_path: Path) -> None:
    """By every command in the same words, and before the work; nothing is left behind."""
    name = command.partition("{}")[2].partition(" ")[0]
    (tmp_path / f"figures{name}").write_text("")
    words = {"MODEL": str(LENET), "OUT": str(tmp_path / "out")}
    words |= {ending.upper(): str(tmp_path / f"out.{ending}") for ending in ("csv", "toml")}
    arguments = command.format(tmp_path / "figure").split()
    result = call(*(words.get(word, word) for word in arguments))
    code = PLACES[command]
    assert result.exit_code == 2
    assert f"error [{code}] {tmp_path / 'figure'}{name}: there is no such file" in result.stderr
    assert f"(did you mean figures{name}?)" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"figures{name}"]


@pytest.mark.parametrize("command", ["opt {}", "sweep {} -t cambricon-x", "run MODEL --input {}"])
def test_a_folder_in_place_of_a_file_is_told(command: str, tmp_path: Path) -> None:
    arguments = command.format(tmp_path).split()
    result = call(*(str(LENET) if word == "MODEL" else word for word in arguments))
    assert result.exit_code == 2 and "is a folder, not a file" in result.stderr


@pytest.mark.parametrize("command", ["opt {}", "trace {}", "plan MODEL -t {}"])
def test_a_file_without_text_is_told(command: str, tmp_path: Path) -> None:
    path = tmp_path / "words.toml"
    path.write_bytes(b"\xff\xfe")
    arguments = command.format(path).split()
    result = call(*(str(LENET) if word == "MODEL" else word for word in arguments))
    assert result.exit_code == 2 and "is no text: byte 0" in result.stderr


def test_a_model_in_place_of_a_target_is_told() -> None:
    (problem,) = refused("plan", LENET, "-t", LENET)
    assert problem["code"] == "target-unknown" and "which is a file" in problem["reason"]


def test_calibration_data_of_no_use_are_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((2, 1, 32, 32), np.float32))
    options = ("--calibration", tmp_path / "x.npz", "-o", tmp_path / "package")
    result = call("compile", LENET, "-t", "cpu", *options)
    assert "calibration data are not used: float32 has no scales" in result.output


def test_text_that_is_none_is_told_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.mlir"
    path.write_text("")
    result = call("opt", path)
    assert result.exit_code == 2
    assert f"[text-invalid] {path}:1:1" in result.stderr
    result = CliRunner().invoke(app, ["opt", "-"], input=b"\xff\xfe")
    assert result.exit_code == 2 and "[input-file] -: " in result.stderr


def test_a_package_is_not_put_in_place_of_a_link_to_nowhere(tmp_path: Path) -> None:
    place = tmp_path / "package"
    place.symlink_to(tmp_path / "nowhere")
    (problem,) = refused("compile", LENET, "-q", "-o", place)
    assert problem["code"] == "output-exists" and str(place) in problem["where"]
    assert [path.name for path in tmp_path.iterdir()] == ["package"] and place.is_symlink()


def test_a_model_that_is_missing_needs_no_folder(tmp_path: Path) -> None:
    place = tmp_path / "sweep.csv"
    (problem,) = refused("sweep", tmp_path / "none.onnx", "-t", "cambricon-x", "-o", place)
    assert problem["code"] == "model-missing" and not problem["help"]
    assert not list(tmp_path.iterdir())


def empty_output(**changed: Any) -> dict[str, Any]:
    tensor = {"name": "e", "shape": [0, 2], "dtype": "float32", **changed}
    return {"empty_outputs": [tensor]}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("package") / "lenet5"
    assert call("compile", LENET, "-q", "-o", place).exit_code == 0
    return place


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"machine": {}}, "machine: Object missing required field `name`"),
        ({"machine": {"name": "cpu", "clock_hz": "1e9"}}, "`$.clock_hz`"),
        ({"machine": {"name": "cpu", "clock_hz": 0}}, "`$.clock_hz`"),
        (
            {"machine": {"name": "c", "clock_hz": 1, "moves": [{}], "primitives": []}},
            "machine: Object missing required field `name` - at `$.moves[0]`",
        ),
        (
            {"machine": {"name": "c", "clock_hz": 1, "moves": [], "primitives": [], "host": {}}},
            "machine: Object missing required field `name` - at `$.host`",
        ),
        (empty_output(shape=["batch"]), "e: is not the shape"),
        (empty_output(shape=[2000000000, 200000000]), "e: is not the shape"),
        (empty_output(dtype="nonsense"), "e: is not the shape"),
        (empty_output(shape=[0, -1]), "`$.empty_outputs[0].shape[1]`"),
        ({"kernels": [{}]}, "Object missing required field `name` - at `$.kernels[0]`"),
        ({"peak_memory_bytes": 1.5}, "`$.peak_memory_bytes`"),
    ],
)
def test_manifests_that_reports_cannot_read(
    package: Path, tmp_path: Path, changed: dict[str, Any], place: str
) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "package"))
    manifest = json.loads((copy / "manifest.json").read_text()) | changed
    (copy / "manifest.json").write_text(json.dumps(manifest))
    (problem,) = refused("run", copy, "--random", 1, "-q")
    assert problem["code"] == "package-invalid" and place in problem["reason"]


def test_an_output_without_elements_is_given(package: Path, tmp_path: Path) -> None:
    """What the refused ones are like where they are right."""
    copy = Path(shutil.copytree(package, tmp_path / "package"))
    manifest = json.loads((copy / "manifest.json").read_text()) | empty_output(dtype="bfloat16")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    result = call("run", copy, "--random", 1, "-q", "--json")
    assert result.exit_code == 0, result.output
    given = {row["name"]: row for row in json.loads(result.stdout)["outputs"]}
    assert given["e"]["shape"] == [0, 2] and given["e"]["dtype"] == "bfloat16"


def test_a_program_of_another_target_is_told_on_one_line(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "package"))
    manifest = json.loads((copy / "manifest.json").read_text()) | {"target": "cambricon"}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    (problem,) = refused("run", copy, "--random", 1, "-q")
    assert problem["code"] == "package-invalid" and "is missing" in problem["reason"]
    assert "\n" not in problem["reason"]
