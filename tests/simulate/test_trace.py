import json
import tracemalloc

import numpy as np
import pytest

from tilewright.machine import Engine, Machine, Memory, Move
from tilewright.simulate import simulate, timed_table, write_trace

CHIP = Machine(
    name="chip",
    clock_hz=5e8,
    memories=(Memory(name="dram", bytes_per_cycle=8), Memory(name="near", bytes=1024)),
    moves=(
        Move(
            name="in",
            source="dram",
            target="near",
            engine="load",
            bytes_per_cycle=8,
            latency=100,
            in_flight=4,
        ),
    ),
    engines=(Engine(name="load"), Engine(name="compute")),
    primitives=(),
    issue_cycles=0,
)
KERNELS = ['conv "1"\n', "fc"]
NODES = [["Conv_0", "Relu_é"], ["Gemm_7"]]


def tiles(count):
    commands = timed_table(2 * count)
    commands["engine"][1::2] = 1
    commands["move"][0::2] = 0
    commands["bytes"][0::2] = 80
    commands["latency"][0::2] = 100
    commands["cycles"][1::2] = 15
    commands["waits"][1::2, 0] = np.arange(1, count + 1)
    commands["kernel"] = np.arange(2 * count) * 2 // (2 * count)
    return commands


def trace(path, commands, **options):
    write_trace(path, simulate(commands, CHIP), commands, CHIP, **options)
    return json.loads(path.read_text())["traceEvents"]


def test_a_small_trace(tmp_path):
    events = trace(tmp_path / "t.json", tiles(2), kernels=KERNELS, nodes=NODES)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {0: "kernels", 1: "load", 2: "compute"}
    spans = [
        (e["tid"], e["name"], e["ts"], e["dur"], e["args"]["bytes"], e["args"]["nodes"])
        for e in events
        if e["ph"] == "X"
    ]
    # Cycles: loads end at 110 and 120, computes at 125 and 140; a cycle is 2 ns.
    assert spans == [
        (0, 'conv "1"\n', 0.0, 0.25, 80, ["Conv_0", "Relu_é"]),
        (0, "fc", 0.25, 0.03, 80, ["Gemm_7"]),
        (1, 'conv "1"\n', 0.0, 0.22, 80, ["Conv_0", "Relu_é"]),
        (2, 'conv "1"\n', 0.22, 0.03, 0, ["Conv_0", "Relu_é"]),
        (1, "fc", 0.22, 0.02, 80, ["Gemm_7"]),
        (2, "fc", 0.25, 0.03, 0, ["Gemm_7"]),
    ]
    second = next(e["args"] for e in events if e["ph"] == "X" and e["args"].get("command") == 2)
    assert (second["start"], second["cycles"], second["busy"]) == (0, 120, 10)


def test_labels_lines_and_missing_names(tmp_path):
    events = trace(tmp_path / "t.json", tiles(1), label=lambda command: f"word {command}")
    assert [e["name"] for e in events if e["ph"] == "X"] == [
        *("kernel 0", "kernel 1", "word 0", "word 1")
    ]
    events = trace(tmp_path / "t.json", tiles(1), line=lambda command: f"a.text:{command}")
    assert [e["args"].get("line") for e in events if e["ph"] == "X"] == [
        *(None, None, "a.text:0", "a.text:1")
    ]


@pytest.mark.parametrize("count", [1, 3, 5000])
def test_tracks_never_overlap_and_bytes_repeat(tmp_path, count):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    events = trace(first, tiles(count), kernels=KERNELS)
    trace(second, tiles(count), kernels=KERNELS)
    assert first.read_bytes() == second.read_bytes()
    for track in (0, 1, 2):
        end = 0.0
        spans = [e for e in events if e["ph"] == "X" and e["tid"] == track]
        assert spans
        for event in spans:
            assert event["ts"] >= end - 2e-6
            end = event["ts"] + event["dur"]
    assert sum(e["ph"] == "X" and e["tid"] > 0 for e in events) == 2 * count


def test_an_empty_trace(tmp_path):
    assert [e["ph"] for e in trace(tmp_path / "t.json", timed_table(0))] == ["M"] * 7


@pytest.mark.slow
def test_memory_is_bounded(tmp_path):
    commands = tiles(12000)
    timeline = simulate(commands, CHIP)
    tracemalloc.start()
    write_trace(tmp_path / "t.json", timeline, commands, CHIP, nodes=NODES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "t.json").stat().st_size > 4e6
    assert peak < 2e6
