"""dlir-sweeps: what latency and bandwidth do to double buffering, over the thesis' five layers.

`python -m benchmarks.papers.dlir.plot` draws what this page keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.measuring import alone, kept
from benchmarks.papers.dlir.code import code_of
from benchmarks.papers.dlir.experiments import KEPT, ORIGINAL
from benchmarks.papers.dlir.layers import LAYERS
from benchmarks.papers.dlir.layers import layer as laid_out
from benchmarks.report import Column, Table, percent, whole

TITLE = "Double buffering against latency and bandwidth (section 5.3.2.3), simulated"

NETWORKS = tuple(LAYERS)

LATENCIES = tuple(range(0, 401, 50))
"""ns, which are cycles at 1 GHz; at the published 128 GB/s."""

BANDWIDTHS = (8, 16, 32, 64, 128, 256)
"""GB/s; at the published 100 ns."""

CORES = 1

OPTIONS = ("resume",)
"""What ``tables`` takes of the command line."""

COLUMNS = (
    Column("layer", "layer"),
    Column("target", "target"),
    Column("latency", "ns"),
    Column("bandwidth", "GB/s"),
    Column("single", "single", whole),
    Column("double", "double", whole),
    Column("gain", "gain", percent),
    Column("automatic", "off where it loses", percent),
)


def run(layer: str, target: str) -> list[dict[str, Any]]:
    """One layer on one machine, at every latency and bandwidth."""
    from tilewright.compiler.pipeline import resolve
    from tilewright.planning import Planner
    from tilewright.planning.planners.greedy import Greedy

    known, original = resolve(target)
    main = [m.name for m in original.moves if original.main in (m.source, m.target)]
    kernel = laid_out(layer, original)
    rows: list[dict[str, Any]] = []
    points = [(latency, 128) for latency in LATENCIES]
    points += [(100, bandwidth) for bandwidth in BANDWIDTHS if bandwidth != 128]
    for latency, bandwidth in points:
        values: dict[str, float] = {f"memory.{original.main}.bytes_per_cycle": bandwidth}
        for name in main:
            values |= {
                f"move.{name}.latency": latency,
                f"move.{name}.bytes_per_cycle": bandwidth,
            }
        machine = original.with_values(values)
        timer = known.timer(machine)
        single, double = (
            Planner(machine, timer=timer, search=Greedy("granule", buffers)).plan(kernel).cycles
            for buffers in (1, 2)
        )
        rows.append(
            {
                "layer": layer,
                "target": target,
                "latency": latency,
                "bandwidth": bandwidth,
                "single": single,
                "double": double,
                "gain": single / double - 1,
                "automatic": max(single / double - 1, 0.0),
            }
        )
    return rows


def turning(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per layer and machine: where double buffering gains most, and from which latency it loses."""
    found: list[dict[str, Any]] = []
    for layer, target in dict.fromkeys((row["layer"], row["target"]) for row in rows):
        mine = [row for row in rows if (row["layer"], row["target"]) == (layer, target)]
        by_bandwidth = [row for row in mine if row["latency"] == 100]
        by_latency = sorted(
            (row for row in mine if row["bandwidth"] == 128), key=lambda row: row["latency"]
        )
        best = max(by_bandwidth, key=lambda row: row["gain"])
        losing = [row["latency"] for row in by_latency if row["gain"] < 0]
        found.append(
            {
                "layer": layer,
                "target": target,
                "best": best["bandwidth"],
                "best_gain": best["gain"],
                "loses": min(losing, default=None),
                "least": min(row["gain"] for row in mine),
                "never": min(row["automatic"] for row in mine),
            }
        )
    return found


TURNING = (
    Column("layer", "layer"),
    Column("target", "target"),
    Column("best", "gains most at GB/s"),
    Column("best_gain", "gain there", percent),
    Column("loses", "loses from ns"),
    Column("least", "least gain", percent),
    Column("never", "least, off where it loses", percent),
)


def measured(layer: str, target: str) -> dict[str, Any]:
    """One layer on one machine, in a process of its own."""
    return {"rows": alone(CORES, run, layer, target)}


def tables(networks: Sequence[str], resume: bool = False) -> list[Table]:
    """Every layer on the original machines that there are."""
    from tilewright.system.choices import target_names

    targets = [name for name in ORIGINAL if name in target_names()]
    rows: list[dict[str, Any]] = []
    for target in targets:
        for name in networks:
            path = KEPT / f"sweep-{target}-{name}.json"
            rows += kept(path, resume, measured, name, target, code=code_of(target))["rows"]
    return [
        Table(
            "Turning points",
            TURNING,
            turning(rows),
            (
                "The thesis: convolutions gain everywhere; on ACC-C and ACC-X fully connected "
                "layers lose by latency, on ACC-S beyond 100 ns; conv1 on ACC-C turns at 16 GB/s.",
            ),
        ),
        Table(
            "All points, with the granule-aware greedy planner",
            COLUMNS,
            rows,
            (
                "Off where it loses: what `greedy{start=granule}` takes, the faster of both.",
                "Picture: dlir-sweeps.svg, drawn by `python -m benchmarks.papers.dlir.plot`.",
            ),
        ),
    ]
