"""The gallery's machines: LeNet-5 on each, against the interpreter, bit for bit on integers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.tables import gallery

import tilewright
from tests.slow import but_fast
from tilewright.machine.load import load_machine
from tilewright.numerics.element_types import ELEMENTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gallery.md").read_text()

OWN_FILES = sorted(name for name, files in gallery.MACHINES.items() if "machines/" in files[0])
"""Those in examples/machines; Gemmini's are tested by its driver (test_gemmini.py)."""


def logits(folder: Path) -> Path:
    """LeNet-5 without its softmax, which the host would compute in floats."""
    model = onnx.load(ROOT / "examples" / "lenet5" / "lenet5.onnx")
    last = model.graph.node.pop()
    assert last.op_type == "Softmax"
    model.graph.output[0].name = last.input[0]
    path = folder / "logits.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", but_fast(OWN_FILES, ["ethos-u55"]))
def test_lenet5_is_the_interpreters(name: str, tmp_path: Path) -> None:
    file = ROOT / "examples" / gallery.MACHINES[name][0]
    package = tilewright.compile(logits(tmp_path), str(file), directory=tmp_path / "package")
    image = np.random.default_rng(5).standard_normal((1, 1, 32, 32)).astype(np.float32)
    outputs, expected = package.run({"image": image}), package.reference({"image": image})
    (result,), (wanted,) = outputs.values(), expected.values()
    assert np.ptp(wanted) > 0
    if ELEMENTS[load_machine(file).element].is_integer:
        np.testing.assert_array_equal(result, wanted)
    else:
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    kernels = package.summary()["kernels"]
    computed = [kernel["name"] for kernel in kernels if kernel.get("cycles")]
    assert len(computed) == 7, kernels  # Convolutions, pools and products.


@pytest.mark.parametrize("name", gallery.MACHINES)
def test_every_machine_is_on_the_page_and_cites_its_sources(name: str) -> None:
    file = ROOT / "examples" / gallery.MACHINES[name][0]
    assert f"examples/{gallery.MACHINES[name][0]}" in PAGE
    if name in OWN_FILES:
        text = file.read_text()
        tags = set(re.findall(r"\[([A-Z]|[a-z]+)\] ", text.partition("\nname =")[0]))
        assert tags, "no source is named"
        body = text.partition("\nname =")[2]
        assert tags - set(re.findall(r"\[([A-Z]|[a-z]+)\] ", body)) <= {"H"}
    assert load_machine(file).primitives


def test_figures_of_an_answer() -> None:
    kernel = {"engine": "accelerator", "predicted_cycles": 50.0, "timed_cycles": 80.0}
    told = {
        "kernels": [
            kernel | {"granule_bound_cycles": 60.0, "bound_cycles": 20.0},
            kernel | {"timed_cycles": None, "granule_bound_cycles": 44.0, "bound_cycles": 6.0},
            {"engine": "host"},
        ],
        "limits": {"resource": "core", "kernels": {"core": 1, "dram": 1}},
        "energy_pj": {"dram": 3e6, "core": 1e6},
    }
    row = gallery.figures(told, ROOT / "examples" / "machines" / "nvdla-small.toml")
    assert (row["cycles"], row["kernels"], row["host"]) == (130.0, 2, 1)
    assert (row["granule"], row["bound"]) == (0.8, 0.2)
    assert (row["limit"], row["limited"]) == ("core", "core 1, dram 1")
    assert (row["microjoules"], row["most"]) == (4.0, "dram")
    assert row["microseconds"] == pytest.approx(0.13)


@pytest.mark.parametrize("name", ["squeezenet", "mobilenet_v2", "resnet18", "gru"])
def test_networks_have_the_size_that_the_page_says(name: str) -> None:
    model = gallery.BUILDERS[name]()
    sizes = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ([8, 1, 64] if name == "gru" else [1, 3, gallery.SIZE, gallery.SIZE])
