"""Networks on the cores of DNNVM, simulated: throughput, bounds, and the paper's figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Stopwatch, model_path
from benchmarks.papers.dnnvm.cases import CASES
from benchmarks.papers.dnnvm.cases import save as case_path
from benchmarks.report import Column, Table, megabytes, percent, seconds, whole

if TYPE_CHECKING:
    from tilewright.machine import Machine

TITLE = "DNNVM on its CNN core, int8, simulated"

NETWORKS = ("vgg16", "resnet50", "googlenet")

DEVICES: Mapping[str, int] = {"zu2": 1, "zu9": 3}
"""Device -> cores, which share its bandwidth in equal parts and compute one image each."""

PAPER = {
    ("vgg16", "zu2"): 333.75,
    ("vgg16", "zu9"): 2820.0,
    ("resnet50", "zu9"): 1380.0,
    ("googlenet", "zu9"): 1410.0,
}
"""GOP/s of convolutions with fusion (tables 3 and 4, section 6.2)."""

PAPER_GAIN = {"vgg16": "1.02", "googlenet": "1.26"}
"""How many times as fast fusion makes a network (section 6.2.1)."""


def products(network: Any) -> int:
    """Multiply-adds of the convolutions and matrix products that the core runs."""
    from tilewright.graph.dialect import KernelOp
    from tilewright.ir.types import shape_of

    total = 0
    for kernel in network.block.ops:
        if not isinstance(kernel, KernelOp) or kernel.on_host:
            continue
        for anchor, *_ in kernel.computes:
            if anchor.name in ("graph.conv", "graph.matmul"):
                total += prod(shape_of(anchor.result)) * prod(shape_of(anchor.inputs[1])[1:])
    return total


def apart(machine: Machine) -> Machine:
    """A core on which every kernel is one of its own and loads all that it reads."""
    from tilewright.machine.records import MemoryRecord

    memories = tuple(one.model_copy(update={"own": MemoryRecord()}) for one in machine.memories)
    return machine.model_copy(update={"fusions": (), "memories": memories})


def run(name: str, device: str, *, fused: bool = True) -> dict[str, Any]:
    """Compile a network for a device, and time its words; no values are computed.

    Without ``fused`` every kernel is one of its own, planned as well as those of chains are, and
    nothing stays in the banks for others.
    """
    from tilewright.compiler.api import compile
    from tilewright.targets.base import find_target
    from tilewright.targets.dpu.target import CoreTarget

    target = find_target(device)
    assert isinstance(target, CoreTarget)
    machine, cores = target.machine(), DEVICES[device]
    if not fused:
        machine = apart(machine)
    share = target.core.memory_bytes_per_second / target.core.clock_hz / cores
    values: dict[str, Any] = {"memory.dram.bytes_per_cycle": share}
    for move in machine.moves:
        values[f"move.{move.name}.bytes_per_cycle"] = min(share, move.bytes_per_cycle)
    watch = Stopwatch()
    with TemporaryDirectory() as folder:
        executable = compile(
            case_path(name, Path(folder)) if name in CASES else model_path(name),
            target,
            machine=machine,
            values=values,
            directory=f"{folder}/p",
            progress=watch,
        )
        watch.stop()
        begin = time.process_time()
        profile = executable.runner.timed()
        simulated = time.process_time() - begin
        network = executable.runner.parts.network  # type: ignore[attr-defined]
        multiplied, found = products(network), executable.summary()
    assert profile.cycles is not None
    took = profile.cycles / target.core.clock_hz
    hosts = [one for one in profile.kernels if one.on_host and one.nodes]
    return {
        "network": name,
        "device": device,
        "operations": 2 * multiplied / 1e9,
        "kernels": sum(not one.on_host for one in profile.kernels),
        "milliseconds": 1e3 * took,
        "rate": cores * 2 * multiplied / 1e9 / took,
        "paper": PAPER.get((name, device)),
        "utilisation": multiplied / target.core.macs / profile.cycles,
        "of_bound": found["granule_bound_cycles"] / profile.cycles,
        "predicted": found["predicted_cycles"] / profile.cycles,
        "traffic": profile.dram_bytes,
        **{f"busy_{engine}": part for engine, part in profile.engines.items()},
        "host": ", ".join(node for one in hosts for node in one.nodes) or "none",
        "compile": sum(watch.cpu_seconds.values()),
        "simulate": simulated,
    }


def both(name: str, device: str) -> dict[str, Any]:
    """The figures with fusion, and beside them what was measured without it."""
    plain, row = run(name, device, fused=False), run(name, device)
    row["milliseconds_apart"], row["kernels_apart"] = plain["milliseconds"], plain["kernels"]
    row["traffic_apart"], row["utilisation_apart"] = plain["traffic"], plain["utilisation"]
    row["speedup"] = plain["milliseconds"] / row["milliseconds"]
    row["gain"] = PAPER_GAIN.get(name)
    return row


def tables(networks: Sequence[str]) -> list[Table]:
    """One row for every network and device."""
    rows = [both(name, device) for name in networks for device in DEVICES]
    throughput = Table(
        "Throughput with fusion",
        [
            Column("network", "network"),
            Column("device", "device"),
            Column("operations", "GOP", seconds),
            Column("milliseconds", "ms of a core", seconds),
            Column("rate", "GOP/s", whole),
            Column("paper", "paper", whole),
            Column("utilisation", "of the products", percent),
            Column("of_bound", "of the granule bound", percent),
            Column("host", "on the host"),
        ],
        rows,
        [
            "GOP are two for every product of the convolutions and matrix products on the core.",
            "`zu9`: three cores, an image each, with a third of 8 GB/s each; the paper's bandwidth "
            "is not known.",
            "The granule bound is the greater of computing and moving, kernel by kernel, with "
            "tiles' granules rounded and every tensor moved once; of a fused kernel it is that of "
            "its busiest engine.",
        ],
    )
    fusion = Table(
        "What fusion gains",
        [
            Column("network", "network"),
            Column("device", "device"),
            Column("kernels_apart", "kernels apart"),
            Column("kernels", "fused"),
            Column("milliseconds_apart", "ms apart", seconds),
            Column("milliseconds", "fused", seconds),
            Column("speedup", "times as fast", seconds),
            Column("gain", "paper"),
            Column("traffic_apart", "MB apart", megabytes),
            Column("traffic", "fused", megabytes),
            Column("utilisation_apart", "of the products apart", percent),
            Column("utilisation", "fused", percent),
        ],
        rows,
        [
            "Apart, every kernel is planned for itself by the same planner.",
            "The paper gives 1.02 to 1.26, the most for GoogLeNet; it names no device.",
        ],
    )
    engines = Table(
        "What binds, and what it takes to compile",
        [
            Column("network", "network"),
            Column("device", "device"),
            *(
                Column(f"busy_{engine}", engine.upper(), percent)
                for engine in ("load", "conv", "misc", "save")
            ),
            Column("predicted", "predicted of simulated", percent),
            Column("compile", "s to compile", seconds),
            Column("simulate", "s to time", seconds),
        ],
        rows,
        ["Parts of the time in which an engine is busy; seconds are of the processor."],
    )
    return [throughput, fusion, engines]
