"""DLIR's pages: what is pruned, and that rows tell the code that they were measured with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.papers.dlir import experiments, sparse
from benchmarks.papers.dlir.code import code_of
from benchmarks.papers.dlir.published import digested, published
from onnx import numpy_helper

from benchmarks import measuring, report


@pytest.mark.parametrize("density", (0.5, 0.1))
def test_pruned_networks_keep_the_largest_weights(
    density: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring, "MODELS", tmp_path)
    network, kept = sparse.pruned("lenet5", (density,))
    assert kept == pytest.approx(density, abs=0.01)
    whole = onnx.load(measuring.model_path("lenet5"))
    for before, after in zip(whole.graph.initializer, network.graph.initializer, strict=True):
        old, new = (numpy_helper.to_array(tensor) for tensor in (before, after))
        if old.ndim == 1:
            np.testing.assert_array_equal(old, new)
            continue
        np.testing.assert_array_equal(new[new != 0], old[new != 0])
        assert np.abs(old[new == 0]).max() <= np.abs(new[new != 0]).min()
        assert (new != 0).mean() == pytest.approx(density, abs=0.01)


def test_rows_tell_their_code() -> None:
    codes = {target: code_of(target) for target in ("cambricon", "cambricon-x", "shidiannao")}
    assert len(set(codes.values())) == 3
    assert code_of("shidiannao-l") == codes["shidiannao"]
    assert all(len(code) == 8 for code in codes.values())


def test_rows_are_read_back_from_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What another computer measured stays on the page, as older than today's code."""
    names = ("exact", "single", "granule", "one")
    measured = {
        "target": "shidiannao",
        "code": "0a",
        "passed": True,
        "cycles": 40.0,
        "latency_bound": 32.0,
        "granule_efficiency": 0.7,
        "tilings": 99,
        "plans": {name: [(10.0 + place, 3), (5.0, 4)] for place, name in enumerate(names)},
    }
    rows = [digested(measured | {"network": network}) for network in experiments.NETWORKS]

    def rows_of(*_: object) -> tuple[list[dict[str, Any]], list[str]]:
        return rows, []

    monkeypatch.setattr(experiments, "rows_of", rows_of)
    tables = experiments.tables(experiments.NETWORKS)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.keep("dlir", "DLIR", tables, {})
    found = published(tmp_path / "dlir.json")
    assert len(found) == len(rows)
    for row in rows:
        read = found[row["network"], row["target"]]
        assert read["cycles"] == row["cycles"] and read["code"] == "0a"
        if row["network"] in experiments.SIX:
            assert {key: read["gains"][key] for key in row["gains"]} == row["gains"]
            assert len(read["partitioning"]) == len(row["partitioning"]) == 2
    assert published(tmp_path / "none.json") == {}
