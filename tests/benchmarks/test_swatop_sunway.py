"""swATOP's page for SW26010: doubles as a variant for timing, and results written by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest
from benchmarks.papers.swatop_sunway.experiments import ELEMENTS, tables
from benchmarks.papers.swatop_sunway.kernels import convolution

from tilewright.planning import plan
from tilewright.planning.planners.swatop import Swatop
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.mesh import MESH


def test_doubles_take_more_bytes_and_as_many_instructions() -> None:
    search = Swatop(mesh=MESH)
    single, double = (
        plan(convolution(4, 64, 32, 8, element=element), MACHINE, search=search)
        for element in ELEMENTS[::-1]
    )
    # Transactions of 128 bytes, which short rows do not fill, hide a part of the difference.
    assert single.moved_bytes < double.moved_bytes <= 2 * single.moved_bytes
    assert single.predicted_cycles < double.predicted_cycles <= 2 * single.predicted_cycles


def test_results_by_hand_come_from_a_file(request: pytest.FixtureRequest) -> None:
    """``pytest --swdnn FILE``: swDNN's, of which each line is batch, Ni, No, Ro, GFLOPS."""
    file = request.config.getoption("--swdnn")
    if file is None:
        pytest.skip("no file given (--swdnn)")
    (table,) = tables([file])
    lines = [line for line in Path(file).read_text().splitlines() if line.strip()]
    assert len(table.rows) == len(lines) > 0
    assert mean(row["ratio"] >= 1 for row in table.rows) >= 0.95
    assert all(row["efficiency"] < 1 and row["float64"] < row["float32"] for row in table.rows)
