"""MiniMalloc's published problems fit their capacity: ``pytest --minimalloc FOLDER``."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.allocator.files import check, read_problem
from benchmarks.tables.allocator import FILE_NODES

from tilewright.memory import allocate_exactly


@pytest.mark.slow
def test_the_problems_fit(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--minimalloc")
    if folder is None:
        pytest.skip("no folder given (--minimalloc)")
    paths = sorted(Path(folder).glob("*.csv"))
    assert paths
    misfits: dict[str, str] = {}
    for path in paths:
        problem, _ = read_problem(path)
        found = allocate_exactly(problem, nodes=FILE_NODES)
        assert check(problem.buffers, found.offsets) == found.peak
        if reason := found.misfit(problem.capacity):
            misfits[path.stem] = reason
    assert not misfits
