"""Packages from strangers: whatever is changed in them, the loader refuses or runs, no more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tilewright
from tests.slow import but_fast
from tilewright import Executable, TilewrightError
from tilewright.runtime.manifest import Manifest
from tilewright.system.typed_json import from_json

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"
INPUT = {"image": np.random.default_rng(1).random((1, 1, 32, 32), np.float32)}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("packages") / "lenet5"
    tilewright.compile(LENET, "cambricon-x", directory=place)
    return place


def refusal(action: Callable[[], object]) -> str:
    """The code of the first problem of an action that must be refused."""
    with pytest.raises(TilewrightError) as caught:
        action()
    return caught.value.problems[0].code


def forge(package: Path) -> None:
    """Make the manifest agree with changed files, as a stranger would."""
    text = (package / "manifest.json").read_text()
    from_json(Manifest, text).write(package)


@pytest.mark.slow
def test_saved_package_runs_the_same(package: Path, tmp_path: Path) -> None:
    one = Executable.load(package)
    copy = one.save(tmp_path / "copy")
    two = Executable.load(copy)
    assert np.array_equal(one.run(INPUT)["probabilities"], two.run(INPUT)["probabilities"])
    assert one.profile.cycles == two.profile.cycles
    assert one.check(INPUT, one.run(INPUT)).equal


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
def test_outputs_outlive_the_next_run(target: str) -> None:
    executable = tilewright.compile(LENET, target)
    first = executable.run(INPUT)["probabilities"]
    before = first.copy()
    second = executable.run({"image": 1 - INPUT["image"]})["probabilities"]
    np.testing.assert_array_equal(first, before)
    assert np.abs(first - second).max() > 1e-3


def test_check_sees_a_wrong_output(package: Path) -> None:
    executable = Executable.load(package)
    outputs = executable.run(INPUT)
    wrong = outputs["probabilities"].copy()
    wrong[0, 3] += 2**-14
    check = executable.check(INPUT, {"probabilities": wrong})
    assert not check.equal and check.mismatches == 1
    assert check.max_abs_error == pytest.approx(2**-14)


def test_profile_before_a_run_is_refused(package: Path) -> None:
    assert refusal(lambda: Executable.load(package).profile) == "profile-missing"


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "program/../../outside", "linked"])
def test_files_outside_are_refused(package: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "package"))
    (tmp_path / "outside").write_text("secret")
    (copy / "linked").symlink_to(tmp_path / "outside")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 6, "sha256": "0" * 64}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert refusal(lambda: Executable.load(copy)) == "package-invalid"


def test_other_formats_are_refused(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "package"))
    manifest = json.loads((copy / "manifest.json").read_text()) | {"format": 999}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert refusal(lambda: Executable.load(copy)) == "package-invalid"


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),  # a failing package is small enough to look at as it is
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_forged_packages_only_refuse_or_run(
    package: Path, tmp_path: Path, data: st.DataObject
) -> None:
    copy = tmp_path / "package"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(package, copy)
    files = sorted(p for p in copy.rglob("*") if p.is_file())
    file = data.draw(st.sampled_from(files), label="file")
    content = bytearray(file.read_bytes() or b" ")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at:]
            case _:
                content[at:at] = data.draw(st.binary(max_size=9))
        if not content:
            content = bytearray(b" ")
    file.write_bytes(bytes(content))
    try:
        if file.name != "manifest.json":
            forge(copy)
        executable = Executable.load(copy)
        outputs = executable.run(INPUT, check_races=True)
        executable.check(INPUT, outputs)
    except TilewrightError:
        pass


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "picture"), ("shape", [1, 1, 64, 64]), ("dtype", "int32"), ("shape", [1, 1024])],
)
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_programs_have_the_inputs_and_outputs_of_their_manifest(
    side: str, key: str, value: object, tmp_path: Path
) -> None:
    place = tmp_path / "lenet5"
    tilewright.compile(LENET, "cpu", directory=place)
    path = place / "program" / "program.json"
    program = json.loads(path.read_text())
    program[side][0][key] = value
    path.write_text(json.dumps(program))
    forge(place)
    assert refusal(lambda: Executable.load(place).run(INPUT)) == "package-invalid"
