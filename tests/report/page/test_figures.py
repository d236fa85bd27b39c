"""Figures of packages agree with independent sums: the summary's, the simulator's, the graph's."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.report.page.page_models import HOSTILE, SMALL_NPU, TERN, compiled, image

import tilewright
from tilewright.codegen.program.stepped import TimedRunner
from tilewright.report.page.compare import compared
from tilewright.report.page.data import figures, figures_of_run
from tilewright.targets.generic.runner import InstructionRunner
from tilewright.targets.generic.timing import accesses_of


@pytest.mark.few(1)
@pytest.mark.parametrize("target", [SMALL_NPU, "shidiannao"])
def test_kernels_sum_to_the_summary(models: Path, target: str) -> None:
    executable = compiled(models, target, HOSTILE)
    executable.run(image())
    told, found = executable.summary(), figures(executable)
    away = [kernel for kernel in found.kernels if kernel.engine == "accelerator"]
    parts = [(k.compute or 0.0) + (k.moves or 0.0) + (k.idle or 0.0) for k in away]
    assert parts == pytest.approx([k.simulated for k in away])
    assert np.ceil(sum(k.simulated or 0.0 for k in away)) == told["cycles"]
    assert sum(k.bytes or 0 for k in away) == told["dram_bytes"]
    assert sum(k.share or 0.0 for k in found.kernels) == pytest.approx(1.0)
    for engine in found.engines:
        assert engine.busy / told["cycles"] == pytest.approx(told["engines"][engine.name])
    main = next(memory for memory in found.memories if memory.name == found.machine.main)
    assert main.peak <= told["peak_memory_bytes"]
    assert main.peak >= max(edge.bytes for edge in found.edges)


def test_operations_are_the_multiply_adds_of_the_model(models: Path) -> None:
    found = figures(compiled(models, SMALL_NPU, HOSTILE))
    by_node = {node: kernel for kernel in found.kernels for node in kernel.nodes}
    assert by_node[HOSTILE].operations == 16 * 24 * 24 * 3 * 9
    assert by_node["third"].operations == 24 * 12 * 12 * 16 * 9
    assert by_node[HOSTILE].peak == 16 * 24 * 24 * 3 * 9 / 64


@pytest.mark.parametrize("target", [SMALL_NPU, TERN])
def test_every_byte_that_a_command_touches_lies_in_a_buffer_of_that_time(
    models: Path, target: str
) -> None:
    executable = compiled(models, target, HOSTILE)
    runner = executable.runner
    assert isinstance(runner, InstructionRunner)
    found, spans = figures(executable), runner.timeline
    names = [memory.name for memory in found.machine.memories]
    occupants = {memory.name: memory.occupants for memory in found.memories}
    checked = 0
    for access in accesses_of(runner.program):
        memory = names[access["memory"]]
        if memory in (found.machine.main, "tables") or not (access["count"] > 0).all():
            continue
        low = int(access["address"])
        high = low + int(access["run"])
        high += int(((access["count"] - 1) * access["stride"]).sum())
        start, end = spans.start[access["command"]], spans.end[access["command"]]
        assert any(
            each.address <= low and high <= each.address + each.bytes
            and each.start <= start and end <= each.end
            for each in occupants[memory]
        ), f"{memory} {low}..{high} at {start}..{end}"  # fmt: skip
        checked += 1
    assert checked > 50


def test_tensors_that_stay_on_the_chip_are_edges_there(models: Path) -> None:
    found = figures(compiled(models, TERN, HOSTILE))
    places = {(edge.tensor, edge.memory) for edge in found.edges}
    stays = {e.tensor: e for m in found.memories for e in m.occupants if e.stays and e.kernels}
    assert {("pool", "tile"), ("second", "tile"), ("sum", "dram")} <= places
    assert {tensor for tensor, memory in places if memory == "tile"} == set(stays)
    # From the kernel that computes it to the last that reads it.
    windows = {name: (start, end) for name, start, end in found.windows}
    readers = [edge.target for edge in found.edges if edge.tensor == "pool"]
    source = next(edge.source for edge in found.edges if edge.tensor == "pool")
    assert len(readers) == 2 and stays["pool"].bytes == 16 * 12 * 12 * 2
    assert stays["pool"].start == windows[source][0]
    assert stays["pool"].end == max(windows[reader][1] for reader in readers)


@pytest.mark.slow
def test_frames_are_the_same_figures(on_npu: tilewright.Executable) -> None:
    pytest.importorskip("pandas")
    found = figures(on_npu)
    frames = found.frames()
    assert list(frames["kernels"]["name"]) == [kernel.name for kernel in found.kernels]
    assert frames["kernels"]["bytes"].sum() == sum(kernel.bytes or 0 for kernel in found.kernels)
    busy = frames["intervals"].groupby("engine")["busy"].sum()
    assert {name: busy[name] for name in busy.index} == {e.name: e.busy for e in found.engines}
    assert len(frames["occupants"]) == sum(len(memory.occupants) for memory in found.memories)
    assert len(frames["edges"]) == len(found.edges)


def test_a_native_run_is_measured(models: Path) -> None:
    executable = compiled(models, "cpu", HOSTILE)
    assert figures(executable).kind == "predicted"
    executable.run(image(), profile=True)
    found = figures(executable)
    assert (found.kind, found.unit, found.engines) == ("measured", "us", ())
    seconds = sum(kernel.measured or 0.0 for kernel in found.kernels)
    assert found.end == pytest.approx(seconds * 1e6)


def test_a_run_in_json_has_the_same_kernels(on_npu: tilewright.Executable) -> None:
    on_npu.run(image())
    told = json.loads(json.dumps(on_npu.summary()))
    found, whole = figures_of_run(told, "before"), figures(on_npu)
    assert [k.simulated for k in found.kernels] == [k.simulated for k in whole.kernels]
    groups = compared([whole, found])
    for number in range(2):
        times = sum(group["times"][number] or 0.0 for group in groups)
        assert times == pytest.approx(
            sum(kernel.seconds or 0.0 for kernel in whole.kernels) * 1e6, rel=0.5
        )


def test_runs_that_fuse_differently_are_matched_by_nodes(models: Path) -> None:
    runs = [figures(compiled(models, target, HOSTILE)) for target in (SMALL_NPU, "shidiannao")]
    groups = compared(runs)
    for number, run in enumerate(runs):
        times = sum(group["times"][number] or 0.0 for group in groups)
        known = sum(kernel.seconds or 0.0 for kernel in run.kernels) * 1e6
        assert times == pytest.approx(known)
        assert sum(group["kernels"][number] for group in groups) == len(run.kernels)
    named = [name for group in groups for name in group["nodes"].split(", ")]
    assert len(named) == len(set(named))


def test_a_trace_has_counters_that_sum_to_the_run(
    on_npu: tilewright.Executable, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    on_npu.run(image(), trace=path)
    events = json.loads(path.read_text())["traceEvents"]
    counters: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            counters.setdefault(event["name"], []).append((event["ts"], value))
    microseconds = 1e6 / 500e6  # One cycle.

    def integral(name: str) -> float:
        times, values = np.array(counters[name]).T
        return float((values[:-1] * np.diff(times)).sum()) / microseconds

    runner = on_npu.runner
    assert isinstance(runner, TimedRunner)
    for number, move in enumerate(runner.parts.machine.moves):
        moved = int(runner.commands["bytes"][runner.commands["move"] == number].sum())
        if moved:
            assert integral(f"{move.name} bandwidth") == pytest.approx(moved, rel=1e-3)
    peaks = sum(entry.peak_cycles or 0.0 for entry in on_npu.manifest.kernels)
    assert integral("multipliers busy") / 100 == pytest.approx(peaks, rel=1e-3)
    for memory in figures(on_npu).memories:
        if memory.bytes and memory.occupants:
            assert max(value for _, value in counters[f"{memory.name} taken"]) == memory.peak


def test_notebooks_show_the_summary_escaped(on_npu: tilewright.Executable) -> None:
    html = on_npu._repr_html_()
    assert html.startswith("<table>") and html.endswith("</table>")
    assert "<img" not in html and "cycles at 500 MHz" in html
    # The figures are those of the same run, under the name of the model and the target.
    shown = figures(on_npu)._repr_html_()
    assert shown.startswith("<table>") and shown.endswith("</table>") and "<img" not in shown
    assert shown.split("<tr>")[1:] == html.split("<tr>")[1:]
