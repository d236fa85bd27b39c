"""swATOP's comparison: which shapes, how a loss is stated, and one small shape from end to end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from benchmarks.papers.swatop import brute, experiments, paired
from benchmarks.papers.swatop.brute import Store
from benchmarks.papers.swatop.paired import best_of, loss
from benchmarks.papers.swatop.shapes import MOST, Shape, convolutions, products, sampled

from tilewright.targets.cpu.machine import machine


def test_the_sample_is_fixed_and_spread() -> None:
    convs, matrices = convolutions(), products()
    assert (len(convs), len(set(convs))) == (60, 60)
    assert (len(matrices), len(set(matrices))) == (120, 120)
    assert convs == convolutions() and matrices == products()
    for shapes in (convs, matrices):
        sizes = [shape.multiply_adds for shape in shapes]
        assert sizes == sorted(sizes)
        assert Counter(shape.held_out for shape in shapes)[True] == len(shapes) // 3
    assert matrices[0].sizes == (200, 200, 200)
    assert matrices[-1].multiply_adds == MOST
    assert {shape.sizes[0] for shape in matrices} >= {200, 256, 4096, 8000, 8192}
    assert all(inputs >= outputs for inputs, outputs, _ in (shape.sizes for shape in convs))


def test_the_smallest_or_the_largest_are_taken() -> None:
    every = convolutions()
    assert sampled(every, None) == every
    assert sampled(every, 2) == every[:2]
    assert [shape.sizes for shape in sampled(every, -2)] == [(512, 384, 256), (512, 512, 256)]
    assert sampled(every, 0) == []


def test_the_best_of_even_rounds_is_charged_in_odd_ones() -> None:
    rounds = [[2.0, 1.0, 3.0], [2.2, 2.0, 1.0], [2.0, 1.0, 3.0], [2.2, 2.0, 1.0]]
    assert best_of(rounds, [0, 1, 2]) == 1
    assert best_of(rounds, [0, 2]) == 0
    assert loss(rounds, 0, 1) == pytest.approx(0.1)
    assert loss(rounds, 1, 1) == 0.0
    assert loss(rounds, 2, 1) == 0.0, "what was faster after all loses nothing"


def test_what_was_timed_is_found_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "timed.sqlite")
    store.add([brute.Timed("a", 1.0, 2.0)])
    store.keep_rounds("shape", "a b", [[1.0, 2.0], [3.0, 4.0]])
    again = Store(tmp_path / "timed.sqlite")
    assert again.of(["a", "b"]) == {"a": brute.Timed("a", 1.0, 2.0)}
    assert again.rounds("shape", "a b") == [[1.0, 2.0], [3.0, 4.0]]
    assert again.rounds("shape", "b a") == []


@pytest.mark.slow
def test_a_product_is_searched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(experiments, "FOLDER", tmp_path)
    monkeypatch.setattr(experiments, "machine_at_hand", machine)
    monkeypatch.setattr(paired, "ROUND_SECONDS", 1e-5)
    shape = Shape("product", (33, 48, 64))
    monkeypatch.setattr(experiments, "products", lambda: [shape])
    summary, details = experiments.tables(["listing-2"])
    (row,) = details.rows
    assert row["shape"] == "product 33x48x64"
    assert row["candidates"] > 1
    assert row["loss"] >= 0.0
    assert row["ratio"] == pytest.approx(row["brute_seconds"] / row["model_seconds"])
    assert [(r["part"], r["shapes"]) for r in summary.rows] == [("developed on", 1), ("all", 1)]

    def built(*_: object) -> None:
        raise AssertionError("everything is known already")

    monkeypatch.setattr(brute, "built", built)
    assert experiments.tables(["listing-2"])[1].rows[0]["candidates"] == row["candidates"]
