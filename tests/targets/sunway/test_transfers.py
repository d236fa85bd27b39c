"""Every DMA of the emitted C is one that its tile program has, and none is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import NETWORKS

CASES: list[tuple[str, dict[str, Any]]] = [
    ("tiny", {"memory.ldm.bytes": 10240}),
    ("tiny", {}),
    ("lenet", {}),
    ("residual", {"memory.ldm.bytes": 12288, "cores": 5}),
    ("alex", {"memory.ldm.bytes": 16384}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
)
def test_transfers_are_those_of_the_tile_program(
    name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    package = Package.of(NETWORKS[name](tmp_path), tmp_path, values)
    folder = tmp_path / "run"
    folder.mkdir()
    ran = package.run(folder)
    assert (ran.status, ran.said) == (0, "")
    for symbol in package.programs:
        text = (package.program / f"layers/{symbol}_slave.c").read_text()
        assert package.differences(symbol, ran, text) == []
