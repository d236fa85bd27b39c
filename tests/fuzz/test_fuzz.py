"""A few hundred random graphs on all engines; ``make fuzz`` runs thousands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import Phase, find, settings

from tests.fuzz.__main__ import Tally, stretch
from tests.fuzz.cases import Case, cases, judged, operators, reduced
from tilewright.graph.operations import BY_NAME, Operation

ERF = BY_NAME["erf"]
GRAPHS = 200
"""Shared by parts, which run side by side."""

PARTS = 4


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_engines_agree_on_random_graphs(part: int, tmp_path: Path) -> None:
    tally = Tally(tmp_path, slow=12)
    path = stretch(tally, GRAPHS // PARTS, seed=part)
    assert path is None, tally.last
    assert tally.graphs >= GRAPHS // PARTS * 0.8
    for engine in ("cpu", "import", "onnxruntime"):
        assert tally.results[engine, "agrees"] >= 0.8 * tally.graphs, tally.results
    assert len(tally.operators) > 25


def has(case: Case | None, *wanted: str) -> bool:
    return case is not None and set(wanted) <= operators(case)


@pytest.mark.slow
def test_a_fault_shrinks_to_a_file_that_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong meaning of one operator is found, and what is left is little more than its node."""
    right = ERF.evaluate

    def wrong(self: Operation, *arrays: np.ndarray) -> np.ndarray:
        return right(self, *arrays) * np.float32(1 + 1e-4)

    monkeypatch.setattr(ERF, "evaluate", wrong)
    case = find(
        cases(),
        lambda case: has(case, "Erf") and not judged(case, ()).passed,
        settings=settings(max_examples=500, database=None, deadline=None, phases=[Phase.generate]),
    )
    assert case is not None
    case = reduced(case, ())
    assert len(case.model.graph.node) <= 3
    assert case.model.graph.node[-1].op_type == "Erf"
    path = case.save(tmp_path)
    assert not replayed(path)
    monkeypatch.setattr(ERF, "evaluate", right)
    assert replayed(path)


def replayed(path: Path) -> bool:
    with np.load(path.with_suffix(".npz")) as file:
        inputs = {name: file[name] for name in file.files}
    return judged(Case(onnx.load(path), inputs), ()).passed
