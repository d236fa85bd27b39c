"""A request has the digest of all that was asked for, and of what its files hold."""

from pathlib import Path

import pytest

from tilewright.compiler.request import request_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"a model")
    return path


def digest(model: Path, target: str = "cpu", **asked: object) -> str:
    found = request_of(model, target, asked)
    assert found is not None
    return found.digest


def test_what_is_asked_for_is_told_apart(model: Path, tmp_path: Path) -> None:
    weights, machine = tmp_path / "weights.bin", tmp_path / "machine.toml"
    weights.write_bytes(b"some weights")
    machine.write_bytes(b"a machine")
    digests = [
        digest(model),
        digest(model, "generic"),
        digest(model, str(machine)),
        digest(model, name="1"),
        digest(model, name=1),
        digest(model, name=True),
        digest(model, keep_float=("a", "b")),
        digest(model, keep_float=("a, b",)),
        digest(model, shapes={"a": (1, 2)}),
        digest(model, shapes={"a": (1, "2")}),
        digest(model, values={"memory.sb.bytes": 4}),
        digest(model, caffemodel=weights),
        digest(model, caffemodel=str(weights)),
    ]
    assert len(set(digests)) == len(digests)
    for path in (model, machine, weights):
        path.write_bytes(b"changed")
    again = [digest(model), digest(model, str(machine)), digest(model, caffemodel=weights)]
    assert not {*again} & {*digests}


def test_empty_options_and_other_places_change_nothing(model: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / model.name
    copy.write_bytes(model.read_bytes())
    renamed = copy.with_name("renamed.onnx")
    renamed.write_bytes(model.read_bytes())
    assert digest(copy, bare=False, shapes={}, name=None) == digest(model)
    assert digest(renamed) != digest(model), "functions are called by the file's name"


def test_what_no_digest_tells_is_no_request(model: Path) -> None:
    samples = object()
    assert request_of(object(), "cpu", {}) is None
    assert request_of(model, object(), {}) is None
    assert request_of(model, "cpu", {"calibration": samples}) is None
    assert request_of(model, "cpu", {"shapes": {"a": (1, samples)}}) is None
    assert request_of(model.with_name("missing.onnx"), "cpu", {}) is None


def test_files_that_change_meanwhile_are_seen(model: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_bytes(b"a machine")
    found = request_of(model, str(machine), {})
    assert found is not None and found.unchanged()
    machine.write_bytes(b"another")
    assert not found.unchanged() and found.unchanged(known=(machine,))
    machine.unlink()
    assert not found.unchanged()
