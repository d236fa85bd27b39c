"""decode: one token of SmolLM2-135M on simulated machines, beside what main memory allows.

Each row is ``tilewright plan``'s of a decoder of 30 layers on the token after 255 others
(transformers.llama_step), with random weights: cycles, and the bound with every intermediate on the
chip, which main memory sets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.report import Column, Table, megabytes, percent, whole

TITLE = "A token of a language model on simulated machines"

MACHINES = Path(__file__).parents[2] / "examples" / "machines"

TARGETS = {
    "ascend910": ("ascend910",),
    "ethos-u55": (str(MACHINES / "ethos-u55.toml"), "--numbers", "int8"),
    "tpu-v1": (str(MACHINES / "tpu-v1.toml"), "--numbers", "int8"),
}
"""The options of ``plan`` for each machine: tpu-v1 has a memory of its own for weights."""

NETWORKS = ("llama",)
OPTIONS = ("targets",)

PAST = 255


def run(machine: str) -> dict[str, Any]:
    """Plan the step for a machine, as a user would."""
    import onnx
    from typer.testing import CliRunner

    from benchmarks import models
    from benchmarks.transformers import llama_step
    from tilewright.cli.main import app

    target, *options = TARGETS[machine]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        onnx.save(models.randomise(llama_step(PAST)), path)
        words = ["plan", str(path), "--json", "--quiet", "--target", target, *options]
        done = CliRunner().invoke(app, words)
    if done.exit_code:
        raise RuntimeError(f"{machine}: {done.output}")
    told = json.loads(done.stdout)
    rows = [row for row in told["kernels"] if row["engine"] == "accelerator"]
    cycles = sum(row["timed_cycles"] or row["predicted_cycles"] for row in rows)
    bound, clock = told["limits"]["cycles"], clock_of(target)
    return {
        "machine": machine,
        "cycles": cycles,
        "bound": bound,
        "part": bound / cycles,
        "limit": told["limits"]["resource"],
        "moved": sum(row["moved_bytes"] for row in rows),
        "rate": clock / cycles,
        "most": clock / bound,
        "host": len(told["kernels"]) - len(rows),
    }


def clock_of(target: str) -> float:
    """Cycles a second of a target, or of a machine file."""
    from tilewright.compiler.pipeline import resolve

    return resolve(target)[1].clock_hz


COLUMNS = (
    Column("machine", "machine"),
    Column("cycles", "cycles", whole),
    Column("bound", "bound", whole),
    Column("part", "of the bound", percent),
    Column("limit", "set by"),
    Column("moved", "MB moved", megabytes),
    Column("rate", "tokens a second", whole),
    Column("most", "at most", whole),
    Column("host", "kernels on the host", whole),
)

REMARKS = (
    "Weights are float16 on ascend910 and int8 on the others. Kernels on the host (normalisation, "
    "rotation, softmax, SiLU of int8 networks) take no cycles here.",
)


def tables(networks: Sequence[str], targets: Sequence[str] = tuple(TARGETS)) -> list[Table]:
    """Plan the step for the machines."""
    del networks
    return [Table(TITLE, COLUMNS, [run(machine) for machine in targets], REMARKS)]
