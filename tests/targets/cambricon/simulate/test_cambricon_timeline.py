"""The trace of a run: one event an instruction of the units, at the simulator's times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.targets.cambricon.simulate.running import R, number

from tilewright.simulate import write_trace
from tilewright.targets.cambricon.machine import MACHINE
from tilewright.targets.cambricon.simulate import Simulator
from tilewright.targets.cambricon.simulate.timeline import events_of
from tilewright.targets.cambricon.statements import assemble_statements, statement


def test_events_are_written_with_names_times_and_kernels(tmp_path: Path) -> None:
    words = assemble_statements(
        [
            number(R[1], 640),
            statement("VLOAD", R[0], R[1], R[0], 0),
            statement("VAV.wide.wide0.wide1.shift=2", R[0], R[2], R[0], R[0]),
            statement("VSTORE", R[0], R[1], R[0], 0),
            statement("SLOAD", R[3], R[0], 0),
        ]
    )
    kernels = np.array([0, 0, 1, 1, 1])
    simulator = Simulator(words, MACHINE, np.zeros(4096, np.uint8), kernels=kernels, events=True)
    simulator.run()
    result = simulator.result()
    path = tmp_path / "trace.json"
    spans, table, label = events_of(result, words, MACHINE)
    nodes = [["x"], ["y", "z"]]
    write_trace(path, spans, table, MACHINE, kernels=["a", "b"], nodes=nodes, label=label)
    found = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    commands = [e for e in found if "command" in e["args"]]
    assert [e["name"] for e in commands] == ["VLOAD", "VAV.wide.shift=2.wide0.wide1", "VSTORE"]
    assert [e["args"]["nodes"] for e in commands] == [["x"], ["y", "z"], ["y", "z"]]
    assert [e["args"]["bytes"] for e in commands] == [1280 + 16, 0, 1280 + 16]
    for event, (start, end) in zip(commands, result.times.tolist(), strict=False):
        assert event["ts"] * 1000 == start
        assert abs((event["ts"] + event["dur"]) * 1000 - end) < 1e-3
    tracks = [e["name"] for e in found if "command" not in e["args"]]
    assert tracks == ["a", "b"]
    assert result.times.shape == (4, 2)  # the scalar load has no engine and no track


def test_events_outgrow_their_first_room() -> None:
    words = assemble_statements([number(R[1], 8), *[statement("RV", R[0], R[1])] * 10000])
    simulator = Simulator(words, MACHINE, np.zeros(8, np.uint8), events=True)
    simulator.run()
    result = simulator.result()
    assert result.events[:, 0].tolist() == list(range(1, 10001))
    assert (np.diff(result.times[:, 0]) == 1).all()
