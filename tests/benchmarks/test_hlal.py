"""HLAL's benchmarks: the layers are those of the table, and all of them assemble."""

import numpy as np
import pytest
from benchmarks.papers.hlal.experiments import THESIS_LAYERS, _assembled, _bound, lines
from benchmarks.papers.hlal.layers import NAMES, layer


@pytest.mark.parametrize("name", NAMES)
def test_layers_assemble_in_both_directions(name: str) -> None:
    of = layer(name)
    for direction, text in (("forward", of.forward), ("backward", of.backward)):
        program = _assembled(text)
        assert program.vsm_bytes <= 64 << 10 and program.msm_bytes <= 768 << 10
        assert _bound(name, direction, program) > 0
    shapes = {array.name: array.shape for array in _assembled(of.forward).data.arrays}
    if name in THESIS_LAYERS:
        inputs, outputs = THESIS_LAYERS[name]
        assert (shapes["x"][1] * shapes["x"][2], shapes["x"][3]) == (inputs[0] ** 2, inputs[1])
        assert (shapes["y"][1] * shapes["y"][2], shapes["y"][3]) == (outputs[0] ** 2, outputs[1])


def test_two_layers_take_the_lines_of_the_thesis() -> None:
    rows = {row["network"]: row for row in lines()}
    assert rows["two_layers"]["lines"] == 16  # one declaration more than the thesis prints
    assert all(np.isclose(row["ratio"], row["words"] / row["lines"]) for row in rows.values())
