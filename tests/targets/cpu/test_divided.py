"""What each core computes of a kernel whose loop they share: all of it once, in balance."""

import ctypes
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from tests.slow import crossed
from tests.targets.cpu.kernel_harness import PLAIN, Maker
from tests.targets.cpu.primitive_cases.convolutions import convolution
from tests.targets.cpu.primitive_cases.methods import winograd

from tilewright.graph.kernels import kernel_of
from tilewright.graph.values import value_names
from tilewright.planning import Planner
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.sharing import parts
from tilewright.targets.cpu.runner import CpuRunner
from tilewright.targets.cpu.target import CpuTarget

CHANNELS, COLUMNS = 12, 5


@pytest.mark.parametrize("extent, step", [(7, 4), (111, 28), (4, 4), (9, 2), (24, 16), (5, 1)])
@pytest.mark.parametrize("cores", [1, 2, 3, 5, 8])
def test_parts_cover_the_extent_in_whole_tiles(extent: int, step: int, cores: int) -> None:
    found = parts(extent, step, cores)
    assert len(found) == cores and sum(found) == extent
    assert max(found) <= ceil(ceil(extent / step) / cores) * step
    assert all(size % step == 0 for size in found[:-1])


@pytest.mark.parametrize("rows, step", [(7, 4), (7, 2), (6, 2), (3, 2), (9, 4)])
def test_every_core_computes_its_part_of_the_rows(rows: int, step: int, tmp_path: Path) -> None:
    m = Maker(PLAIN, seed=3)
    value = convolution(m, (1, 8, rows, COLUMNS), CHANNELS)
    sizes = (("ci", 8), ("co", 4), ("n", 1), ("oh", step), ("ow", COLUMNS))
    m.schedules["k0"] = Schedule(
        "conv", (Level("registers", sizes, ("n", "oh", "co")),), shared="oh"
    )
    m.finish(value)
    CpuTarget().emit(m.compilation(), tmp_path)
    runner = CpuRunner(tmp_path)
    kernel = next(tmp_path.glob("src/*_k00_*.c")).stem
    function = getattr(runner.library, kernel)
    x, w, b = (np.ones(4096, np.float32) for _ in range(3))
    for count in (1, 2, 3, 4):
        found: list[int] = []
        every = np.zeros((CHANNELS // 4, rows, COLUMNS, 4), int)
        for part in range(count):
            y = np.full(every.shape, np.nan, np.float32)
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, w, b, y)]
            function(*pointers, ctypes.c_long(part), ctypes.c_long(count))
            written = ~np.isnan(y)
            found.append(int(written.all((0, 2, 3)).sum()))
            every += written
        assert (every == 1).all()
        assert found == parts(rows, step, count)


@pytest.mark.parametrize(("shared", "plain"), crossed(["th", "tw", "co"], [False, True]))
def test_cores_that_fill_scratch_agree_with_one(shared: str, plain: bool, tmp_path: Path) -> None:
    m = Maker(PLAIN, seed=4)
    value = winograd(m, (1, 9, 10, 11), 20, 4, (2, 2, 2), plain=plain, pads=(1, 1, 1, 1))
    m.schedules["k0"] = replace(m.schedules["k0"], shared=shared)
    m.finish(value)
    CpuTarget().emit(m.compilation(), tmp_path)
    runner = CpuRunner(tmp_path)
    alone = runner.run(m.inputs).outputs["out0"]
    np.testing.assert_allclose(alone, m.expected()["out0"], atol=1e-4)
    for threads in (2, 3, 4, 5):
        runner.threads = threads
        runner.workspace[:] = 255  # NaN
        assert np.array_equal(runner.run(m.inputs).outputs["out0"], alone), threads


@pytest.mark.parametrize("first", ["oh", ""])
def test_all_threads_copy_a_large_image(first: str, tmp_path: Path) -> None:
    """Whether the first step is theirs, too, or the first thread's alone."""
    m = Maker(PLAIN, seed=6)
    shape = (1, 3, 70, 80)
    values = [convolution(m, shape, 8, (3, 3), plain=True, pads=(1, 1, 1, 1)) for _ in range(2)]
    m.finish(*values)
    names = value_names(m.module)
    for op, shared in zip(m.kernels, (first, "oh"), strict=True):
        kernel = kernel_of(op, names)
        m.schedules[kernel.symbol] = replace(Planner(PLAIN).plan(kernel).schedule, shared=shared)
    CpuTarget().emit(m.compilation(), tmp_path)
    runner = CpuRunner(tmp_path)
    expected = m.expected()
    for threads in (1, 2, 3, 5):
        runner.threads = threads
        for _ in range(5):
            runner.workspace[:] = 255  # NaN
            found = runner.run(m.inputs).outputs
            for name, array in expected.items():
                np.testing.assert_allclose(found[name], array, atol=1e-4)
    source = (tmp_path / "src" / f"{runner.prefix}.c").read_text()
    assert source.count("const long end = 70L * (part + 1) / parts * 80;") == len(m.inputs) == 2
