"""Packages with free dims: what they hold, what a shape gets, what is refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.slow import but_fast
from tilewright import Bounds, Cache, DynamicExecutable, Executable, TilewrightError
from tilewright.runtime import dynamic, read_manifest

WEIGHT = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
BIG = np.random.default_rng(0).standard_normal((3, 1 << 15)).astype(np.float32)


def model(
    dims: list[Any], weight: np.ndarray = WEIGHT, second: list[Any] | None = None
) -> onnx.ModelProto:
    """x [.., 3] @ weight, plus, where there is a second input, that."""
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, dims)]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y" if second is None else "m"], name="mm")]
    if second is not None:
        inputs.append(value("z", TensorProto.FLOAT, second))
        nodes.append(helper.make_node("Add", ["m", "z"], ["y"], name="add"))
    graph = helper.make_graph(
        nodes, "net", inputs, [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(model(["n", "t", 3], second=["n", 1, 4]), path)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def inputs(n: int, t: int, m: int | None = None) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n * 100 + t)
    return {
        "x": random.uniform(-1, 1, (n, t, 3)).astype(np.float32),
        "z": random.uniform(-1, 1, (n if m is None else m, 1, 4)).astype(np.float32),
    }


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(TilewrightError) as caught:
        action()
    assert "\n" not in str(caught.value.problems[0])
    return caught.value.problems[0].code


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "build" not in path.relative_to(directory).parts
    }


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
def test_any_admissible_shape_runs(target: str, file: Path, cache: Cache, tmp_path: Path) -> None:
    said: list[str] = []
    made = tilewright.compile(
        file, target, shapes={"x": ("batch:1..4", "t:2..", 3)}, directory=tmp_path / "package",
        cache=cache,
    )  # fmt: skip
    assert isinstance(made, DynamicExecutable)
    assert made.free == {"batch": Bounds(1, 4), "t": Bounds(2)}
    assert [info.shape for info in made.inputs] == [("batch", "t", 3), ("batch", 1, 4)]
    loaded = Executable.load(
        tmp_path / "package", cache=cache, progress=lambda what, done, total: said.append(what)
    )
    for n, t in ((1, 2), (4, 5), (1, 2)):
        given = inputs(n, t)
        found = loaded.run(given)
        assert found["y"].shape == (n, t, 4)
        np.testing.assert_allclose(found["y"], given["x"] @ WEIGHT + given["z"], atol=1e-2)
        assert loaded.check(given, found).equal
        assert loaded.profile.kernels
    building = [what for what in said if what.startswith("specialising")]
    assert building == ["specialising for batch=1, t=2", "specialising for batch=4, t=5"]
    said.clear()
    again = Executable.load(tmp_path / "package", cache=cache, progress=lambda *a: said.append(a))
    again.run(inputs(4, 5))
    assert said == []


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
def test_a_specialisation_has_the_bytes_of_a_compile(
    target: str, file: Path, cache: Cache, tmp_path: Path
) -> None:
    made = tilewright.compile(file, target, cache=cache)
    one = made.specialise({"n": 2, "t": 3})
    tilewright.compile(file, target, shapes={"n": 2, "t": 3}, directory=tmp_path / "static")
    tilewright.compile(
        file, target, shapes={"x": (2, 3, 3), "z": (2, 1, 4)}, directory=tmp_path / "same"
    )
    assert content(one.directory) == content(tmp_path / "static") == content(tmp_path / "same")


def test_equal_packages_have_equal_bytes(file: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        tilewright.compile(file, "cambricon-x", shapes={"n": "1..8"}, directory=tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert set(content(tmp_path / "one")) == {"manifest.json", "model/model.onnx"}
    assert (tmp_path / "one/model/model.onnx").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "room", but_fast(["tilewright", "tilewright.runtime"], ["tilewright.runtime"])
)
def test_the_public_names_bring_the_compiler_along(room: str, file: Path, tmp_path: Path) -> None:
    """Packages alone know of none; each name is tried in a process that has imported nothing."""
    made = tilewright.compile(file, "cambricon-x", shapes={"n": "1..8"})
    made.save(tmp_path / "package")
    program = f"""
from {room} import Executable
from tilewright.errors import TilewrightError
try:
    Executable.load({str(tmp_path / "package")!r}).specialise({{"n": 1, "t": {len(room)}}})
    print("built")
except TilewrightError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    expected = {"tilewright": "built", "tilewright.runtime": "there is no compiler"}
    assert expected[room] in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (inputs(9, 2), "shape-bounds"),
        (inputs(2, 3, 4), "shape-conflict"),
        ({"x": np.zeros((2, 3, 4), np.float32), "z": inputs(2, 3)["z"]}, "input-shape"),
        ({"x": inputs(2, 3)["x"]}, "input-missing"),
        (inputs(2, 3) | {"y": np.zeros(1)}, "input-name"),
    ],
)
def test_runs_that_do_not_fit_are_refused(given, code, file: Path, cache: Cache) -> None:
    made = tilewright.compile(file, "cambricon-x", shapes={"n": "1..8"}, cache=cache)
    assert refusal(lambda: made.run(given)) == code
    assert cache.usage().entries == 0


def test_other_refusals(file: Path, cache: Cache) -> None:
    made = tilewright.compile(file, "cambricon-x", shapes={"n": "1..8"}, cache=cache)
    assert refusal(lambda: made.specialise({"n": 1})) == "shape-open"
    assert refusal(lambda: made.specialise({"n": 1, "t": 2, "u": 3})) == "shape-unknown"
    assert refusal(lambda: made.specialise({"n": 9, "t": 2})) == "shape-bounds"
    assert refusal(lambda: made.graph) == "shape-open"
    assert refusal(lambda: made.runner) == "shape-open"
    assert refusal(lambda: made.profile) == "profile-missing"
    assert refusal(lambda: tilewright.compile(file, shapes={"x": (1, 2, "c")})) == "shape-fixed"
    loaded = tilewright.load(file, shapes={"t": 3})
    assert refusal(lambda: tilewright.compile(loaded, shapes={"t": 3})) == "shape-fixed"
    assert refusal(lambda: tilewright.compile(file, dump=file.parent / "dump")) == "shape-open"
    static = tilewright.compile(loaded, "cambricon-x")
    assert static.specialise({}) is static and static.free == {}
    assert refusal(lambda: static.specialise({"t": 3})) == "shape-unknown"


def test_dims_of_a_caffe_model_cannot_be_free() -> None:
    prototxt = Path(__file__).parents[2] / "examples" / "caffe" / "lenet.prototxt"
    for shape in ("batch,1,28,28", (Bounds(1, 4), 1, 28, 28)):
        shapes = {"data": shape}
        assert refusal(lambda shapes=shapes: tilewright.load(prototxt, shapes=shapes)) == (
            "shape-fixed"
        )


def test_what_no_shape_saves_is_refused_at_compile(tmp_path: Path) -> None:
    broken = model(["n", 3])
    broken.graph.node.append(helper.make_node("RandomNormalLike", ["y"], ["d"]))
    broken.graph.output.append(helper.make_tensor_value_info("d", TensorProto.FLOAT, None))
    onnx.save(broken, tmp_path / "broken.onnx")
    code = refusal(lambda: tilewright.compile(tmp_path / "broken.onnx", directory=tmp_path / "p"))
    assert code.startswith("onnx-") and not (tmp_path / "p").exists()


def test_what_another_shape_may_save_is_noted(tmp_path: Path, cache: Cache) -> None:
    square = model(["n", "t"])  # Only t = 3 fits the weight.
    onnx.save(square, tmp_path / "square.onnx")
    made = tilewright.compile(tmp_path / "square.onnx", "cambricon-x", cache=cache)
    assert "t=224" in made.manifest.notes[0]
    assert made.run({"x": np.ones((2, 3), np.float32)})["y"].shape == (2, 4)
    assert refusal(lambda: made.run({"x": np.ones((2, 5), np.float32)})).startswith("onnx-")


@pytest.mark.slow
def test_weights_are_kept_once(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "data").mkdir()
    onnx.save(
        model(["n", 3], BIG), tmp_path / "big.onnx", save_as_external_data=True,
        location="data/big.bin", size_threshold=0,
    )  # fmt: skip
    package = tmp_path / "package"
    made = tilewright.compile(tmp_path / "big.onnx", "cambricon-x", directory=package, cache=cache)
    assert set(content(package)) == {"manifest.json", "model/model.onnx", "model/data/big.bin"}
    (tmp_path / "data" / "big.bin").unlink()
    folders = [made.specialise({"n": n}).directory for n in (1, 2, 3)]
    for name in ("program/weights.bin", "reference/weights.safetensors"):
        assert len({(folder / name).stat().st_ino for folder in folders}) == 1
    alone = sum(len(data) for data in content(folders[0]).values())
    assert cache.usage().bytes < 1.5 * alone  # three times as much without links


def test_calibrated_ranges_hold_for_every_shape(file: Path, cache: Cache) -> None:
    samples = [{name: 8 * array for name, array in inputs(2, t).items()} for t in (40, 40)]
    made = tilewright.compile(file, "cambricon-x", calibration=samples, cache=cache)
    stacked = {name: np.stack([one[name] for one in samples]) for name in samples[0]}
    same = tilewright.compile(file, "cambricon-x", calibration=stacked, cache=cache)
    assert made.manifest.open_model == same.manifest.open_model
    assert made.manifest.open_model is not None and made.manifest.open_model.ranges
    given = {name: 6 * array for name, array in inputs(3, 7).items()}
    found = made.run(given)["y"]
    want = given["x"] @ WEIGHT + given["z"]
    assert np.abs(found - want).max() < 0.01 * np.abs(want).max()
    assert not any("random" in note for note in made.specialise({"n": 3, "t": 7}).manifest.notes)


def test_few_specialisations_stay_loaded(file: Path, cache: Cache, monkeypatch) -> None:
    monkeypatch.setattr(dynamic, "MOST_LOADED", 2)
    made = tilewright.compile(file, "cambricon-x", cache=cache)
    first = made.specialise({"n": 1, "t": 1})
    for t in (2, 3):
        made.specialise({"n": 1, "t": t})
    assert made.specialise({"n": 1, "t": 3}) is made.specialise({"n": 1, "t": 3})
    assert made.specialise({"n": 1, "t": 1}) is not first


@pytest.mark.parametrize(
    "forge",
    [
        lambda m: m["open_model"].update(file="../../secret.onnx"),
        lambda m: m["open_model"].update(file="/etc/passwd"),
        lambda m: m["open_model"].update(dims=[]),
        lambda m: m["open_model"]["dims"].append({"name": "more", "low": 1, "high": 2}),
        lambda m: m["open_model"]["dims"][0].update(low=5, high=2),
        lambda m: m["open_model"]["dims"][0].update(low=-1),
        lambda m: m["inputs"][0].update(shape=["n", "t", 2**70]),
        lambda m: m["inputs"][0].update(shape=["n", "t", 7]),
        lambda m: m["inputs"][0].update(name="other"),
        lambda m: m["machine"].update(clock_hz="__import__('os')"),
        lambda m: m.update(open_model=None),
        lambda m: m.update(target="nonsense"),
        lambda m: m["open_model"].update(ranges={"y": [0.0, "nan"]}),
    ],
)
def test_forged_packages_are_refused(forge, file: Path, cache: Cache, tmp_path: Path) -> None:
    package = tmp_path / "package"
    tilewright.compile(file, "cambricon-x", directory=package)
    shutil.copy(file, tmp_path / "secret.onnx")
    manifest = json.loads((package / "manifest.json").read_text())
    forge(manifest)
    (package / "manifest.json").write_text(json.dumps(manifest))
    code = refusal(lambda: Executable.load(package, cache=cache).run(inputs(1, 2)))
    assert code.partition("-")[0] in ("package", "shape", "onnx", "input", "machine", "target")
    assert cache.usage().entries == 0


def test_a_damaged_model_is_refused(file: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    tilewright.compile(file, "cambricon-x", directory=package)
    assert read_manifest(package).open_model is not None
    data = bytearray((package / "model/model.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (package / "model/model.onnx").write_bytes(bytes(data))
    assert refusal(lambda: Executable.load(package)) == "package-damaged"


def test_a_free_dim_may_be_empty(tmp_path: Path, cache: Cache) -> None:
    """As a decoder's cache is before the first word; where nothing is said, sizes begin at 1."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Concat", ["past", "x"], ["both"], axis=0),
            helper.make_node("MatMul", ["both", "w"], ["y"]),
        ],
        "decoder",
        [
            value("past", TensorProto.FLOAT, ["before", 3]),
            value("x", TensorProto.FLOAT, ["now", 3]),
        ],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    place = tmp_path / "decoder.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), place)
    package = tmp_path / "package"
    tilewright.compile(place, shapes={"before": "0..4"}, directory=package)
    made = Executable.load(package, cache=cache)
    x = np.ones((2, 3), np.float32)
    for length in (0, 3):
        past = np.full((length, 3), 2, np.float32)
        y = made.run({"past": past, "x": x})["y"]
        np.testing.assert_allclose(y, np.concatenate([past, x]) @ WEIGHT, rtol=1e-5)
    with pytest.raises(TilewrightError, match=r"shape-bounds.*0\.\."):
        tilewright.compile(place, cache=cache).run({"past": x[:0], "x": x})
