"""Whole networks on the host core of an Ascend 910: right, and what of them runs where.

    python -m benchmarks ascend-networks --networks bert_base-128 --no-save
    python -m benchmarks ascend-networks --resume

The second takes what runs of single networks have measured. Names end with a number of tokens where
a model has some. Weights are random, as in ``models``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnxruntime import InferenceSession

import tilewright
from benchmarks import models
from benchmarks.measuring import kept
from benchmarks.report import Column, Table, whole
from benchmarks.transformers import bert_base
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir.types import TensorType

TITLE = "DaVinci: whole networks on the host core"

OPTIONS = ("resume",)

KEPT = Path("build/benchmarks/ascend-networks")
"""Where each network's row is kept when it is measured."""

TOKENS = (1, 17, 128, 512)

NETWORKS: tuple[str, ...] = (
    *("resnet18", "resnet50", "vit_small", "gpt2_step"),
    *(f"bert_base-{tokens}" for tokens in TOKENS),
)


def build(name: str) -> onnx.ModelProto:
    """The model of a name."""
    if "-" in name:
        return models.randomise(bert_base(int(name.split("-")[1])))
    return models.build(name)[1]


def _bytes(kernel: KernelOp) -> int:
    """What a change of format stores, in elements of two bytes."""
    result = kernel.result.type
    assert isinstance(result, TensorType)
    return 2 * int(np.prod(result.get_shape()))


def row(name: str) -> dict[str, Any]:
    """A network compiled, run, and compared."""
    model = build(name)
    feeds = models.feeds(model)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        began = time.perf_counter()
        executable = tilewright.compile(path, "ascend910")
        compiled = time.perf_counter()
        outputs = executable.run(feeds)
        ran = time.perf_counter()
        check = executable.check(feeds, outputs)
        reference = InferenceSession(path).run(None, dict(feeds))
    kernels = [op for op in network_of(executable.graph).walk() if isinstance(op, KernelOp)]
    cores = [item for item in kernels if not item.on_host]
    changes = [item for item in cores if item.operations[0].name.endswith("convert_layout")]
    off = [
        float(np.abs(outputs[value.name] - wanted).max() / np.abs(wanted).max())
        for value, wanted in zip(model.graph.output, reference, strict=True)
    ]
    return {
        "network": name,
        "kernels": len(cores),
        "host": len(kernels) - len(cores),
        "changes": len(changes),
        "bytes": sum(map(_bytes, changes)),
        "cycles": executable.profile.cycles,
        "right": "yes" if check.equal else "no",
        "off": max(off),
        "compile": compiled - began,
        "run": ran - compiled,
    }


def tables(networks: Sequence[str], resume: bool = False) -> list[Table]:
    """The table; with ``resume`` of rows that there are already, where there are."""
    return [
        Table(
            "Networks compiled for ascend910, run on the host core",
            (
                Column("network", "network"),
                Column("kernels", "kernels on the cores"),
                Column("host", "on the host"),
                Column("changes", "changes of format"),
                Column("bytes", "bytes that they store", whole),
                Column("cycles", "cycles, 32 cores", whole),
                Column("right", "within the check's bounds"),
                Column("off", "farthest from onnxruntime", "{:.1e}".format),
                Column("compile", "s to compile", "{:.0f}".format),
                Column("run", "s to run", "{:.1f}".format),
            ),
            [kept(KEPT / f"{name}.json", resume, row, name) for name in networks],
            (
                "Bounds are those of roundings by 2^-11 of each operand, spread through the "
                "network; distances are to float32, by each output's largest magnitude.",
                "Seconds are of one processor of a shared machine.",
            ),
        )
    ]
