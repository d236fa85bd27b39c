"""The tables of the DaVinci thesis: what they say of it holds."""

import pytest
from benchmarks.papers.ascend import formats, products, tables, traffic


def test_traffic_is_the_formulas() -> None:
    rows = traffic()
    assert [row["os"] for row in rows] == [2_359_296, 2_359_296, 3_538_944, 3_538_944, 4_718_592]
    assert rows[0]["os_tile"] == "(256,128,256)"


@pytest.mark.slow
def test_two_levels_are_the_best_where_main_memory_is_slow() -> None:
    rows = {row["tiles"]: row for row in products()}
    thesis = rows["(256,128,256), one of each"]
    best = rows["L1 (256,768,64), A resident"]
    assert thesis["loads"] == 2_359_296
    assert rows["L1 (512,768,64), A resident"]["loads"] == 983_040
    assert best["37.5"] > 0.75 > thesis["37.5"]
    assert best["64.0"] > 0.85 > thesis["64.0"]


@pytest.mark.slow
def test_all_methods_are_listed() -> None:
    rows = {row["method"]: row for row in formats()}
    assert rows["naive"]["vector"] == rows["improved"]["vector"] == 6_144
    assert (rows["naive"]["commands"], rows["improved"]["commands"]) == (128, 53)
    assert len(tables(())) == 3
