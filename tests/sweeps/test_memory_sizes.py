"""Points of more memory against those of less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.sweeps.models import MACHINE, small_model
from tilewright.compiler.pipeline import resolve
from tilewright.sweeps import Row, sweep
from tilewright.sweeps.memory_sizes import never_slower

_, NPU = resolve(MACHINE)


def row(size: int, cycles: float, *, rate: int = 4, host: int = 0) -> Row:
    values = {"memory.feature.bytes": size, "memory.dram.bytes_per_cycle": rate}
    figures = Row("m", "model", values, cycles=cycles, seconds=cycles / 1e9, area_mm2=size / 1e3)
    return replace(figures, host_kernels=host, peak_bytes={"feature": size})


def test_a_row_takes_the_figures_of_less_memory_where_that_is_faster() -> None:
    rows = [row(4096, 90), row(1024, 100), row(2048, 80), row(4096, 95, rate=2)]
    large, small, middle, slow = never_slower(rows, NPU)
    assert (small, middle, slow) == (rows[1], rows[2], rows[3])
    assert (large.cycles, large.planned_at) == (80, "memory.feature.bytes=2048")
    assert large.peak_bytes == {"feature": 2048}
    assert (large.values, large.area_mm2) == (rows[0].values, rows[0].area_mm2)


def test_no_row_takes_figures_with_more_on_the_host_or_of_a_refusal() -> None:
    refused = Row("m", "model", row(512, 0).values, "refused", code="plan-capacity")
    rows = [row(4096, 90), row(1024, 50, host=1), refused]
    assert never_slower(rows, NPU) == rows


def test_rows_are_left_where_energy_depends_on_sizes() -> None:
    rows = [row(4096, 90), row(1024, 50)]
    assert never_slower(rows, NPU.with_values({"memory.feature.read_pj": "bytes / 9"})) == rows
    assert never_slower(rows, NPU.with_values({"memory.feature.read_pj": 2.0})) != rows


def test_more_memory_is_never_slower_in_a_sweep(tmp_path: Path) -> None:
    sizes = {"memory.feature.bytes": "1K..16K:2x", "memory.dram.bytes_per_cycle": [2, 8]}
    rows = sweep(small_model(tmp_path), MACHINE, sizes)
    for rate in (2, 8):
        cycles = [r.cycles for r in rows if r.values["memory.dram.bytes_per_cycle"] == rate]
        assert cycles == sorted(cycles, key=lambda count: -(count or 0.0))
    names = [column for column in rows.table()[0] if column == "planned_at"]
    assert bool(names) == any(each.planned_at for each in rows)
