"""One array for one input, and reports that the first run does not count in."""

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.runtime.test_libraries import WANT, X, network
from tilewright import Executable, TilewrightError
from tilewright.runtime import executable as executable_module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Executable:
    return tilewright.compile(network(tmp_path_factory.mktemp("net") / "net.onnx"), cpu="native")


def test_the_only_input_needs_no_name(made: Executable) -> None:
    found = made.run(X)
    np.testing.assert_array_equal(found["y"], made.run({"x": X})["y"])
    np.testing.assert_allclose(found["y"], WANT, rtol=1e-5, atol=1e-6)
    assert made.check(X, found).passed
    np.testing.assert_array_equal(made.reference(X)["y"], made.reference({"x": X})["y"])
    with pytest.raises(TilewrightError, match=r"input-dtype.*astype\('float32'\)"):
        made.run(X.astype(np.float64))
    with pytest.raises(TilewrightError, match="input-dtype"):
        made.run(X.astype(">f4"))
    with pytest.raises(TilewrightError, match=r"input-dtype.*no numbers"):
        made.run(np.array([None]))
    with pytest.raises(TilewrightError, match="input-shape"):
        made.run(X[:1])


def test_free_dims_are_those_of_the_array(tmp_path: Path) -> None:
    model = network(tmp_path / "net.onnx", rows="rows")
    free = tilewright.compile(model, shapes={"rows": "1..8"})
    found = free.run(X[:2])
    np.testing.assert_allclose(found["y"], WANT[:2], rtol=1e-5, atol=1e-6)
    assert free.specialise_for(X[:2]) is free.specialise({"rows": 2})
    assert free.check(X[:2], found).passed


def test_several_inputs_need_their_names(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "aby"]
    node = helper.make_node("Add", ["a", "b"], ["y"])
    graph = helper.make_graph([node], "sum", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "sum.onnx")
    made = tilewright.compile(tmp_path / "sum.onnx")
    with pytest.raises(TilewrightError, match=r"input-name.*has 2 inputs.*a, b"):
        made.run(np.ones(3, np.float32))


def test_what_names_no_target_is_an_example() -> None:
    with pytest.raises(TilewrightError, match="torch-example-inputs"):
        tilewright.compile("net.onnx", X)
    with pytest.raises(TilewrightError, match="names no target"):
        tilewright.compile("net.onnx", X, example_inputs=X)


def test_reports_are_of_runs_after_the_first(
    made: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Executable.load(made.directory)
    assert "predicted" in made.report()  # Nothing has run: nothing is run for it.
    made.run(X)
    assert "runs after the first" in made.report() and made.summary()["runs"] > 1
    made.run(X)
    assert made.profile.seconds is not None and made.summary()["runs"] >= 1
    monkeypatch.setattr(executable_module, "AGAIN", 0.0)  # As if a run took long.
    made.run(X)
    assert "measured, a run after the first" in made.report()
    made.run(X, profile=True)
    assert "measured, the first run" in made.report()
