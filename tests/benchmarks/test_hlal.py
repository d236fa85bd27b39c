"""HLAL's benchmarks: the layers are those of the tables, and all of them assemble."""

from math import prod
from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.dlplib.nets import prototxt
from benchmarks.papers.hlal.experiments import THESIS_LAYERS, _assembled, _bound, lines
from benchmarks.papers.hlal.layers import FOLDER, NAMES, model, program

from tests.slow import but_fast
from tilewright.frontends.caffe import import_caffe
from tilewright.graph.dialect import network_of
from tilewright.ir.types import shape_of


@pytest.mark.few(2)
@pytest.mark.parametrize("name", but_fast(NAMES, [n for n in NAMES if n != "fc1"]))
def test_layers_assemble_in_both_directions(name: str) -> None:
    for direction in ("forward", "backward"):
        assembled = _assembled(program(name, direction))
        assert assembled.vsm_bytes <= 64 << 10 and assembled.msm_bytes <= 768 << 10
        assert _bound(name, direction, assembled) > 0
    shapes = {a.name: a.shape for a in _assembled(program(name, "forward")).data.arrays}
    (given,) = model(name).graph.input
    assert prod(dim.dim_value for dim in given.type.tensor_type.shape.dim) == prod(shapes["x"])
    if name in THESIS_LAYERS:
        inputs, outputs = THESIS_LAYERS[name]
        assert (shapes["x"][1] * shapes["x"][2], shapes["x"][3]) == (inputs[0] ** 2, inputs[1])
        assert (shapes["y"][1] * shapes["y"][2], shapes["y"][3]) == (outputs[0] ** 2, outputs[1])


@pytest.mark.parametrize("name", ["conv1", "conv2", "pool1", "pool2", "lrn", "fc1", "fc2"])
def test_programs_of_dlplibs_layers_are_the_layers(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.prototxt"
    path.write_text(prototxt(name))
    network = network_of(import_caffe(path).module)
    shapes = {
        a.name: a.shape
        for a in _assembled((FOLDER / "nine" / f"{name}.hlal").read_text()).data.arrays
    }
    for letter, ((_, value),) in (("x", network.inputs), ("y", network.outputs)):
        n, c, h, w = (*shape_of(value), 1, 1)[:4]
        assert shapes[letter] == (n, h, w, c)


@pytest.mark.slow
def test_two_layers_take_the_lines_of_the_thesis() -> None:
    rows = {row["network"]: row for row in lines()}
    first, without, *_ = rows.values()
    # One declaration more than the thesis prints, and without what nothing reads.
    assert (first["network"], first["lines"], without["lines"]) == ("two_layers", 16, 13)
    assert without["words"] == first["words"] - 3
    assert all(np.isclose(row["ratio"], row["words"] / row["lines"]) for row in rows.values())
