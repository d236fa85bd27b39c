"""A point's figures against the pipeline's own, and that sharing changes none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.frontends.onnx.loop_models import recurrent
from tests.slow import but_fast
from tests.sweeps.models import MACHINE, small_model
from tilewright.compiler.build import host_times
from tilewright.compiler.loops import every_kernel
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.machine import Machine
from tilewright.sweeps import Row, sweep
from tilewright.sweeps.evaluate import Bench, program_figures
from tilewright.sweeps.shared import form_of
from tilewright.tile.dialect import BufferOp

FIXED = {"memory.feature.bytes": 2048}


def test_full_effort_plans_as_compile_does(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    (row,) = sweep(model, MACHINE, {"memory.feature.bytes": [2048]}, effort="full")
    target, machine = resolve(MACHINE, values=FIXED)
    with target.planner("model", machine) as ask:
        state = run_pipeline(model, target, machine, ask=ask, until="plan")
    plans = state.plans.values()
    assert row.cycles == sum(plan.cycles for plan in plans)
    assert row.seconds == row.cycles / machine.clock_hz
    assert row.bound_cycles == sum(plan.physical_bound for plan in plans)
    assert row.granule_bound_cycles == sum(plan.granule_bound for plan in plans)
    assert row.moved_bytes == sum(plan.moved_bytes for plan in plans)
    assert row.kernels == len(plans)


@pytest.mark.parametrize("machine", but_fast([MACHINE, "cambricon-x"], []))
def test_rounds_of_a_loop_are_counted_and_planned_once(machine: str, tmp_path: Path) -> None:
    path = tmp_path / "gru.onnx"
    onnx.save(recurrent("GRU", length=20), path)
    (row,) = sweep(str(path), machine, {"clock_hz": [2e8]}, effort="full")
    target, varied = resolve(machine, values={"clock_hz": 2e8})
    with target.planner("model", varied) as ask:
        state = run_pipeline(path, target, varied, ask=ask, until="plan", loops=True)
    every = [each for each in every_kernel(state) if each.compiled.schedule is not None]
    assert {each.rounds for each in every} == {1, 20}
    plans = [(each.rounds, each.state.plans[each.compiled.kernel.symbol]) for each in every]
    assert row.cycles == pytest.approx(sum(rounds * plan.cycles for rounds, plan in plans))
    assert row.moved_bytes == sum(rounds * plan.moved_bytes for rounds, plan in plans)
    assert row.kernels == len(plans) < 40


def test_quick_effort_is_simulated_and_never_better_than_full(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    vary = {"memory.feature.bytes": "512..8K:4x"}
    quick, full = (sweep(model, MACHINE, vary, effort=effort) for effort in ("quick", "full"))
    for fast, best in zip(quick, full, strict=True):
        assert fast.cycles is not None
        assert best.cycles is not None
        assert best.cycles <= fast.cycles <= 1.3 * best.cycles
        assert fast.granule_bound_cycles == best.granule_bound_cycles


SHARED: dict[str, Any] = {
    "memory.feature.bytes": [1024, 4096, 131072],
    "move.load-weight.bytes_per_cycle": [2, 8],
    "move.load-feature.latency": [0, 90],
    "clock_hz": [10**8, 10**9],
    "engine.load.queue": [1, 4],
    "memory.dram.bytes_per_cycle": [2, 8],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("key", SHARED)
def test_points_share_without_changing_a_row(key: str, tmp_path: Path) -> None:
    model = small_model(tmp_path)
    together = sweep(model, MACHINE, {key: SHARED[key]})
    alone = [sweep(model, MACHINE, {key: [value]})[0] for value in SHARED[key]]
    assert _figures(together) == _figures(alone)


def test_times_of_other_primitives_are_shared_and_change_their_own_rows(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    _, machine = resolve(MACHINE)
    pool = next(p for p in machine.primitives if "max_pool" in p.operations)
    key = f"primitive.{pool.name}.cycles"
    values = [pool.cycles, f"100 + {pool.cycles}"]
    together = sweep(model, MACHINE, {key: values})
    alone = [sweep(model, MACHINE, {key: [value]})[0] for value in values]
    assert _figures(together) == _figures(alone)
    assert together[0].cycles != together[1].cycles


def test_a_model_is_read_once_for_sizes_and_rates_of_memories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, machine = resolve(MACHINE)
    for key, value in (("memory.feature.bytes", 64), ("move.load-weight.bytes_per_cycle", 1)):
        assert form_of(machine.with_values({key: value})) == form_of(machine)
    assert form_of(machine.with_values({"element": "fixed8"})) != form_of(machine)
    begun: list[str] = []
    original = Bench.state_of

    def noted(self: Bench, model: str, *others: Any) -> Any:
        begun.append(model)
        return original(self, model, *others)

    monkeypatch.setattr(Bench, "state_of", noted)
    sweep(small_model(tmp_path), MACHINE, {"memory.feature.bytes": [1024, 2048, 4096]})
    # One for each point, and one for all.
    assert len(begun) == 4


def test_peaks_are_the_ends_of_the_buffers_of_the_program(tmp_path: Path) -> None:
    target, machine = resolve(MACHINE)
    state = run_pipeline(small_model(tmp_path), target, machine)
    for item in state.kernels:
        if item.schedule is None:
            continue
        ends: dict[str, int] = {}
        for program in item.programs:
            for op in program.walk():
                if isinstance(op, BufferOp):
                    assert op.bytes is not None
                    size = op.bytes.value.data * op.slots.value.data
                    ends[op.memory] = ends.get(op.memory, 0) + size
        peaks = program_figures(item, machine, target).peaks
        # Side by side they take what they hold, and what rounding adds; never more than there is.
        assert peaks.keys() == ends.keys()
        for memory, peak in peaks.items():
            assert ends[memory] <= peak <= (machine.memory(memory).bytes or 0)


def test_energy_and_area_follow_the_varied_memory(tmp_path: Path) -> None:
    figures = {
        "memory.feature.read_pj": "bytes / 1024",
        "memory.dram.read_pj": 100.0,
        "memory.feature.area_mm2": "bytes / 4096",
        "area_mm2": 1.5,
    }
    model = small_model(tmp_path)
    small, large = sweep(model, MACHINE, {"memory.feature.bytes": [8192, 16384]}, values=figures)
    assert (small.area_mm2, large.area_mm2) == (3.5, 5.5)
    assert small.energy_pj is not None
    # Every byte that main memory gives is read there, for 100 pJ.
    assert small.energy_pj > 100 * 0.5 * (small.moved_bytes or 0)
    (unknown,) = sweep(model, MACHINE, {"memory.feature.bytes": [8192]})
    assert unknown.energy_pj is None and unknown.area_mm2 is None


def test_a_refused_point_is_a_row(tmp_path: Path) -> None:
    rows = sweep(small_model(tmp_path), MACHINE, {"memory.feature.bytes": [4096, -5, "many"]})
    assert [row.status for row in rows] == ["planned", "refused", "refused"]
    assert rows[0].cycles
    assert {row.code for row in rows[1:]} == {"machine-invalid"}
    assert all(row.reason and row.cycles is None for row in rows[1:])


def test_several_models_and_planners(tmp_path: Path) -> None:
    models = [small_model(tmp_path), small_model(tmp_path, "wide.onnx", channels=32)]
    rows = sweep(models, MACHINE, {"planner": ["model", "greedy"]})
    assert [(row.model, row.planner) for row in rows] == [
        (model, planner) for model in models for planner in ("model", "greedy")
    ]
    assert rows[0].cycles != rows[2].cycles


def _figures(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.to_json() | {"pareto": None} for row in rows]


def test_points_that_differ_in_the_clock_alone_are_planned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed: list[float] = []
    original = Bench.state_of

    def noted(self: Bench, model: str, machine: Machine, planner: Any) -> Any:
        formed.append(machine.clock_hz)
        return original(self, model, machine, planner)

    monkeypatch.setattr(Bench, "state_of", noted)
    rows = sweep(small_model(tmp_path), MACHINE, {"clock_hz": [10**8, 2 * 10**8, 10**9]})
    assert len(set(formed)) == 1
    assert len({row.cycles for row in rows}) == 1
    assert rows[0].seconds == 10 * (rows[2].seconds or 0.0)


def test_seconds_of_a_host_that_is_described_are_a_column(tmp_path: Path) -> None:
    machine = tmp_path / "hosted.toml"
    host = "[host]\nname = 'a core'\nclock_hz = 1e9\ncycles_per_operation = 2\n"
    text = Path(MACHINE).read_text(encoding="utf-8")
    machine.write_text(f"{text}\n{host}cycles_per_element = 3\n", encoding="utf-8")
    model = small_model(tmp_path)
    rows = sweep(model, str(machine), {"clock_hz": [2e8, 4e8]})
    target, described = resolve(str(machine))
    with target.planner("model", described) as ask:
        state = run_pipeline(model, target, described, ask=ask, until="plan")
    for row in rows:
        assert row.host_seconds == sum(host_times(state).values()) > 0
        assert row.total_seconds == (row.seconds or 0.0) + row.host_seconds
    columns, lines = rows.table()
    assert columns.index("total_seconds") == columns.index("host_seconds") + 1
    assert [line["host_seconds"] for line in lines] == [row.host_seconds for row in rows]
    # Without other objectives the fastest is that of the least sum.
    assert [row.pareto for row in rows] == [True, True]
    assert "host_seconds" not in sweep(model, MACHINE, {"clock_hz": [2e8]}).table()[0]
