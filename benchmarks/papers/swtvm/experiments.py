"""swtvm: predicted times of layers on one core group, over those of row-wise DMA.

The baseline follows rules (planning/planners/rows.py), as no OpenACC compiler for the SW26010 is at
hand: the highest dim of the result alone is split over the CPEs, each tensor comes row by row, one
row at a time, and nothing is used again beyond its row. ``gload`` reads every element by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import models
from benchmarks.report import Column, Table, percent
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.machine import Machine
from tilewright.planning import PlanCache, Planner, Search
from tilewright.planning.domain import Kernel
from tilewright.planning.own import start_cycles
from tilewright.planning.planners.ldm.planner import Ldm
from tilewright.planning.planners.rows import Rows
from tilewright.targets.sunway.mesh import MESH

TITLE = "swTVM's schedules against row-wise DMA on one core group of SW26010 (predicted)"

NETWORKS = ("alexnet", "vgg19")

PAPER: Mapping[tuple[str, str], float] = {
    ("alexnet", "conv"): 8.32,
    ("alexnet", "fc"): 2.87,
    ("vgg19", "conv"): 6.21,
    ("vgg19", "fc"): 2.03,
    ("pooled", "conv"): 6.71,
    ("pooled", "fc"): 2.45,
}
"""Its mean speed-ups over OpenACC; pooled are the means over all layers (5 and 16, 3 and 3)."""

GLOAD_BYTES_PER_SECOND = 1.48e9
"""Of a core group, by loads of single elements."""

KINDS = {"conv": "conv", "matmul": "fc"}

STAGES: Mapping[str, Sequence[int]] = {"alexnet": (), "vgg19": (2, 2, 4, 4, 4)}
"""Convolutions of each stage, where the paper numbers them so."""

PLANNERS: Mapping[str, Search | None] = {
    "rows": Rows(),
    "published": Ldm(buffers=1),
    "ldm": Ldm(),
    "broadcast": Ldm(mesh=MESH, broadcast=True),
    "mesh": Ldm(mesh=MESH),
    "exact": None,
}
"""The baseline, swTVM as it is printed (one slot), with two slots, with what all CPEs need fetched
once, with registers exchanged, and the best of the cost model, whose cores share nothing."""

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "swgemm": {},
    "swcandle": {"move.get.curve": "swcandle", "move.put.curve": "swcandle"},
    "spawn 0": {"own.sunway.spawn_cycles": 0},
    "spawn 35 us": {"own.sunway.spawn_cycles": 50_750},
    "latency 278": {"move.get.latency": 278, "move.put.latency": 278},
    "one command at a time": {"move.get.in_flight": 1, "move.put.in_flight": 1},
}
"""Values of the machine's open parameters; the first are its defaults."""

ONE_LANE = {
    "primitive.conv.cycles": "n*g*co*oh*ci*kh*kw*(3*ow+8)",
    "primitive.matmul.cycles": "b0*b1*m*n*co*(2*ci+12)",
}
"""Of a baseline whose compiler uses no vectors: loads and stores of single elements."""


@dataclass(frozen=True)
class Layer:
    """A convolution or fully connected layer of a network."""

    network: str
    kernel: Kernel
    name: str
    """As the paper calls it."""

    @property
    def kind(self) -> str:
        """``conv`` or ``fc``."""
        return KINDS[self.kernel.anchor.operation]

    @property
    def gload_seconds(self) -> float:
        """Time to read every factor by itself; a weight once for a row of pixels."""
        extents = self.kernel.anchor.extents
        products = self.kernel.anchor.iterations
        again = 1 + 1 / extents.get("ow", 1)
        return products * 4 * again / GLOAD_BYTES_PER_SECOND


def names_of(network: str) -> list[str]:
    """What the paper calls the layers, in their order."""
    stages = STAGES[network]
    convolutions = [
        f"conv{n}_{m}" for n, count in enumerate(stages, 1) for m in range(1, count + 1)
    ]
    return [*(convolutions or [f"conv{n}" for n in range(1, 6)]), "fc6", "fc7", "fc8"]


@cache
def layers_of(network: str) -> tuple[Layer, ...]:
    """The layers in their order."""
    target, machine = resolve("sunway")
    # swTVM has the direct method alone, and its layers are one kernel each.
    methods = ("im2col", "winograd_input")
    kept = tuple(p for p in machine.exact().primitives if not set(methods) & {*p.operations})
    direct = machine.model_copy(update={"primitives": kept})
    with tempfile.TemporaryDirectory() as folder:
        path = models.save(network, Path(folder))
        state = run_pipeline(path, target, direct, until="plan")
    kernels = [item.kernel for item in state.kernels if item.kernel.anchor.operation in KINDS]
    return tuple(
        Layer(network, kernel, name)
        for kernel, name in zip(kernels, names_of(network), strict=True)
    )


@dataclass
class Planned:
    """Plans of layers on one variant of the machine, kernels alike planned once."""

    machine: Machine

    def __post_init__(self) -> None:
        self.caches: dict[str, PlanCache] = {name: {} for name in PLANNERS}

    def seconds(self, layer: Layer, planner: str) -> float:
        """Predicted time."""
        planned = Planner(self.machine, search=PLANNERS[planner], cache=self.caches[planner]).plan(
            layer.kernel
        )
        return planned.predicted_cycles / self.machine.clock_hz


def machine_of(values: Mapping[str, Any]) -> Machine:
    """The core group with other values."""
    return resolve("sunway", values=dict(values))[1]


def rows_of(
    layers: Sequence[Layer], values: Mapping[str, Any], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Seconds of each layer by planner."""
    planned = Planned(machine_of(values))
    return [
        {
            "network": layer.network,
            "layer": layer.name,
            "kind": layer.kind,
            "gload": layer.gload_seconds,
            **{name: planned.seconds(layer, name) for name in names},
        }
        for layer in layers
    ]


def means(rows: Sequence[Mapping[str, Any]], planner: str) -> dict[tuple[str, str], float]:
    """Mean speed-ups over the baseline, by network and kind, and pooled."""
    speedups: dict[tuple[str, str], float] = {}
    for network, kind in PAPER:
        ratios = [
            row["rows"] / row[planner]
            for row in rows
            if row["kind"] == kind and network in ("pooled", row["network"])
        ]
        if ratios:
            speedups[network, kind] = mean(ratios)
    return speedups


def tables(networks: Sequence[str]) -> list[Table]:
    """Layer by layer, the means beside the paper's, and what the open parameters change."""
    layers = [layer for network in networks for layer in layers_of(network)]
    base = rows_of(layers, {}, list(PLANNERS))
    return [_layers(base), _means(base), _sensitivity(layers, base)]


def _milliseconds(value: float) -> str:
    return f"{1000 * value:.3g}"


def _times(value: float) -> str:
    return f"{value:.2f}"


def _layers(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = [{**row, "speedup": row["rows"] / row["mesh"]} for row in rows]
    columns = [
        Column("network", "network"),
        Column("layer", "layer"),
        *(Column(name, f"{name}, ms", _milliseconds) for name in ("gload", *PLANNERS)),
        Column("speedup", "rows over mesh", _times),
    ]
    best = {
        (network, kind): max(
            (row for row in shown if (row["network"], row["kind"]) == (network, kind)),
            key=lambda row: row["speedup"],
            default=None,
        )
        for network, kind in PAPER
    }
    largest = ", ".join(
        f"{network} {row['layer']} {row['speedup']:.2f}"
        for (network, kind), row in best.items()
        if row is not None and kind == "conv"
    )
    return Table(
        "Layers",
        columns,
        shown,
        [
            f"largest speed-ups of convolutions: {largest} (the paper: conv1 of AlexNet 11.8, "
            "conv4_2 to conv4_4 of VGG-19 10.15)",
            "each time has 10.3 us to start the CPEs and wait for them, an estimate",
        ],
    )


def _means(rows: Sequence[Mapping[str, Any]]) -> Table:
    by_planner = {name: means(rows, name) for name in PLANNERS if name != "rows"}
    shown = [
        {
            "what": f"{network}, {kind}",
            "paper": figure,
            **{name: speedups.get((network, kind)) for name, speedups in by_planner.items()},
        }
        for (network, kind), figure in PAPER.items()
    ]
    columns = [
        Column("what", "mean speed-up over rows"),
        Column("paper", "the paper, over OpenACC", _times),
        *(Column(name, name, _times) for name in by_planner),
    ]
    return Table("Means over the layers", columns, shown)


def _sensitivity(layers: Sequence[Layer], base: Sequence[Mapping[str, Any]]) -> Table:
    """Pooled means with other values of what no public source settles."""
    names = ("rows", "ldm", "mesh")
    shown: list[dict[str, Any]] = []
    for setting, values in SETTINGS.items():
        rows = base if not values else rows_of(layers, values, names)
        shown.append(_pooled(setting, rows))
    alone = rows_of(layers, ONE_LANE, ("rows",))
    mixed = [{**row, "rows": slower["rows"]} for row, slower in zip(base, alone, strict=True)]
    shown.append(_pooled("baseline without vectors", mixed))
    columns = [
        Column("setting", "setting"),
        *(
            Column(f"{name} {kind}", f"{name}, {kind}", _times)
            for kind in ("conv", "fc")
            for name in ("ldm", "mesh")
        ),
        Column("share", "part of the time that starts CPEs", percent),
    ]
    return Table(
        "Pooled means under the machine's open parameters",
        columns,
        shown,
        [
            "curve of DMA swgemm, 15,000 cycles to spawn, latency of DMA 1,043 cycles, two "
            "commands of a CPE at a time, 8 KB of LDM for the stack, 3 cycles for a register of an "
            "exchange, unless the setting says otherwise",
        ],
    )


def _pooled(setting: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    usual = start_cycles(machine_of({}))
    spawn = SETTINGS.get(setting, {}).get("own.sunway.spawn_cycles", usual)
    seconds = spawn / machine_of({}).clock_hz
    row_of_setting: dict[str, Any] = {"setting": setting}
    for name in ("ldm", "mesh"):
        pooled = means(rows, name)
        row_of_setting |= {
            f"{name} {kind}": pooled.get(("pooled", kind)) for kind in ("conv", "fc")
        }
    row_of_setting["share"] = len(rows) * seconds / sum(row["mesh"] for row in rows)
    return row_of_setting
