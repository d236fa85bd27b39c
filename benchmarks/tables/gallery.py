"""gallery: five networks on the machines of docs/gallery.md, as ``tilewright plan`` predicts them.

Each row is one command, ``tilewright plan NETWORK --target MACHINE --json``: cycles, what limits
the network and its kernels, how far it is from the granule bound, and energy by the file's figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import kept
from benchmarks.report import Column, Table, percent, whole

if TYPE_CHECKING:
    from onnx import ModelProto

TITLE = "A gallery of machines"

EXAMPLES = Path(__file__).parents[2] / "examples"

MACHINES: Mapping[str, tuple[str, ...]] = {
    "gemmini": ("gemmini/gemmini.toml",),
    "nvdla-small": ("machines/nvdla-small.toml",),
    "ethos-u55": ("machines/ethos-u55.toml",),
    "eyeriss": ("machines/eyeriss.toml",),
    "simba": ("machines/simba.toml",),
    "tpu-v1": ("machines/tpu-v1.toml",),
    "snitch": ("machines/snitch.toml",),
}
"""File, and what ``--set`` gives to it."""

SIZE = 96
"""Pixels of a side of the images: what networks for small processors take, planned in minutes."""

KEPT = Path("build/benchmarks/gallery")
"""Where each row is kept when it is measured: ``--resume`` goes on from there."""

OPTIONS = ("targets", "resume", "seconds")


def resized(name: str) -> ModelProto:
    """A network of the benchmarks for images of ``SIZE`` x ``SIZE``."""
    from benchmarks import models

    model = models.build(name)[1]
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = SIZE
    del model.graph.value_info[:]
    return model


def _lenet5() -> ModelProto:
    from benchmarks import models

    return models.build("lenet5")[1]


def _gru() -> ModelProto:
    from benchmarks.tables.unseen import gru

    return gru()


BUILDERS: Mapping[str, Callable[[], ModelProto]] = {
    "lenet5": _lenet5,
    "gru": _gru,
    "resnet18": lambda: resized("resnet18"),
    "mobilenet_v2": lambda: resized("mobilenet_v2"),
    "squeezenet": lambda: resized("squeezenet"),
}

NETWORKS = tuple(BUILDERS)


def run(network: str, machine: str) -> dict[str, Any]:
    """Plan a network for a machine, as a user would."""
    import onnx
    from typer.testing import CliRunner

    from tilewright.cli.main import app

    file, *values = MACHINES[machine]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{network}.onnx"
        onnx.save(BUILDERS[network](), path)
        command = ["plan", str(path), "--json", "--quiet", "--target", str(EXAMPLES / file)]
        done = CliRunner().invoke(app, [*command, *(f"--set={value}" for value in values)])
    if done.exit_code:
        raise RuntimeError(f"{network} on {machine}: {done.output}")
    row = {"machine": machine, "network": network}
    return row | figures(json.loads(done.stdout), EXAMPLES / file)


def figures(told: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The figures of one answer of ``tilewright plan --json``."""
    from tilewright.machine.load import load_machine

    rows = [row for row in told["kernels"] if row["engine"] == "accelerator"]
    taken = [row["timed_cycles"] or row["predicted_cycles"] for row in rows]
    limits, cycles = told["limits"], sum(taken)
    granule = sum(row["granule_bound_cycles"] for row in rows)
    energies = told.get("energy_pj", {})
    return {
        "kernels": len(rows),
        "host": len(told["kernels"]) - len(rows),
        "cycles": cycles,
        "microseconds": cycles / load_machine(file).clock_hz * 1e6,
        "granule": granule / cycles,
        "bound": sum(row["bound_cycles"] for row in rows) / cycles,
        "limit": limits["resource"],
        "limited": ", ".join(f"{name} {count}" for name, count in limits["kernels"].items()),
        "microjoules": sum(energies.values()) / 1e6 if energies else None,
        "most": max(energies, key=lambda part: energies[part]) if energies else None,
    }


COLUMNS = (
    Column("machine", "machine"),
    Column("network", "network"),
    Column("cycles", "cycles", whole),
    Column("microseconds", "us", whole),
    Column("limit", "limited by"),
    Column("limited", "kernels limited by"),
    Column("granule", "of granule bound", percent),
    Column("bound", "of peak", percent),
    Column("microjoules", "energy: uJ", whole),
    Column("most", "most of it"),
    Column("host", "kernels on the host", whole),
)

REMARKS = (
    f"SqueezeNet, MobileNet-v2 and ResNet-18 take images of {SIZE} x {SIZE}; the GRU takes 8 steps "
    "of 64 values. Weights are random, LeNet-5's are trained.",
    "`limited by` is the busiest engine or memory if all intermediates stayed on the chip; "
    "`kernels limited by` counts kernels, each with its intermediates in main memory.",
    "Cycles are those of the kernels that the machine computes; what runs on the host takes none "
    "here. `of granule bound` is the bound by the machine's own rounding as a part of the cycles, "
    "`of peak` the bound without rounding. Bounds are those of single kernels: where results stay "
    "on the chip for the next one, a network may take less than their sum.",
    "Energy is what the figures of each file give, most of them of 45 nm: compare networks on a "
    "machine, not machines.",
)


def tables(
    networks: Sequence[str],
    targets: Sequence[str] = tuple(MACHINES),
    resume: bool = False,
    seconds: float | None = None,
) -> list[Table]:
    """Plan the networks for the machines; after ``seconds`` nothing new begins."""
    end = None if seconds is None else time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for network in networks:
        for machine in targets:
            path = KEPT / f"{machine}-{network}.json"
            known = resume and path.exists()
            if not known and end is not None and time.monotonic() > end:
                missing.append(f"{network} on {machine}")
                continue
            rows.append(kept(path, resume, run, network, machine))
    rows.sort(key=lambda row: (list(targets).index(row["machine"]), row["network"]))
    left = (f"Not planned: {', '.join(missing)}.",) if missing else ()
    return [Table("Networks on machines", COLUMNS, rows, (*REMARKS, *left))]
