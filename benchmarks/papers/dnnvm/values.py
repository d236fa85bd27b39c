"""dnnvm-values: networks of full size on the CNN core, compared with the interpreter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import models
from benchmarks.measuring import model_path
from benchmarks.papers.dnnvm.experiments import apart
from benchmarks.report import Column, Table, seconds, whole

TITLE = "DNNVM's CNN core: what networks of full size compute"

NETWORKS = (
    *("vgg16", "resnet50", "googlenet", "mobilenet_v2", "squeezenet"),
    *("yolov3_tiny", "ssd", "fcn", "unet"),
)
"""A path to a model of another format is taken, too: ``--networks deploy.prototxt --as caffe``."""

DEVICES = ("zu2", "zu9")

IMAGES = 2


def run(name: str, device: str) -> dict[str, Any]:
    """Compile with and without fusion, run both on the same images, and compare."""
    import tilewright
    from tilewright.targets.base import find_target

    machine, path = find_target(device).machine(), Path(name)
    path = path if path.exists() else model_path(name)
    spent = time.process_time()
    results: list[list[dict[str, np.ndarray]]] = []
    row: dict[str, Any] = {"network": path.stem, "device": device, "differ": 0, "elements": 0}
    with TemporaryDirectory() as folder:
        for kind, described in (("fused", machine), ("apart", apart(machine))):
            executable = tilewright.compile(
                path, device, machine=described, directory=f"{folder}/{kind}"
            )
            results.append([])
            for seed in range(IMAGES):
                (given,) = executable.manifest.inputs
                image = models.smooth(given.shape, seed)
                outputs = executable.run({given.name: image})
                check = executable.check({given.name: image}, outputs)
                row["differ"] += check.mismatches
                row["elements"] += sum(values.size for values in outputs.values())
                results[-1].append(outputs)
            row[kind] = sum(entry.engine == "accelerator" for entry in executable.manifest.kernels)
    row["distinct"] = min(
        len(np.unique(values)) for outputs in results[0] for values in outputs.values()
    )
    row["between"] = sum(
        int((fused[key] != plain[key]).sum())
        for fused, plain in zip(*results, strict=True)
        for key in fused
    )
    row["seconds"] = time.process_time() - spent
    return row


def tables(networks: Sequence[str]) -> list[Table]:
    """One row for every network and device."""
    rows = [run(name, device) for name in networks for device in DEVICES]
    return [
        Table(
            "Outputs of the words, and the interpreter's",
            [
                Column("network", "network"),
                Column("device", "device"),
                Column("elements", "elements compared", whole),
                Column("differ", "differ from the interpreter", whole),
                Column("between", "fused from apart", whole),
                Column("distinct", "values, at least", whole),
                Column("apart", "kernels apart", whole),
                Column("fused", "fused", whole),
                Column("seconds", "s", seconds),
            ],
            rows,
            [
                f"Random weights, {IMAGES} images each, with fusion and without. The functional "
                "simulator executes every instruction; the interpreter computes the graph.",
                "The least number of different values in any output of any image shows that the "
                "network has not died out.",
            ],
        )
    ]
