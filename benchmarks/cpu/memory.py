"""What a network takes of memory while it runs, each in a process that does nothing else.

A figure is the growth of the process from when its libraries are loaded to the most that it ever
holds, loading the model and three runs included. ``bound`` is what no program can go below that
keeps its weights in memory: the weights as the model has them, and the most activations that are
live at once under the order of the kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx

from benchmarks import models
from benchmarks.cpu.peers import MODULES, PEERS, installed
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.graph.dialect import network_of
from tilewright.graph.passes.memory_plan import memory_plan_of
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.runner import CpuRunner

RUNS = 3

STATUS = Path("/proc/self/status")


def _kilobytes(field: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+) kB", STATUS.read_text(), re.MULTILINE)
    return int(found.group(1)) if found else 0


def growth(run: Callable[[], object]) -> int:
    """Bytes by which the most that this process holds during ``run`` exceeds what it held before.

    0 where the system does not tell (elsewhere than on Linux).
    """
    if not STATUS.exists():
        return 0
    Path("/proc/self/clear_refs").write_text("5")  # The most is counted from here on.
    before = _kilobytes("VmRSS")
    run()
    # The system counts by processor, and is a few pages off.
    return max(0, _kilobytes("VmHWM") - before) * 1024


def ours(path: Path, folder: Path) -> dict[str, int]:
    """The arenas of a built package, and the growth of this process that runs it."""
    feeds = models.feeds(onnx.load(path))
    sizes: dict[str, int] = {}

    def run() -> None:
        runner = Executable.load(folder / "package").runner
        assert isinstance(runner, CpuRunner)
        found = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}
        for _ in range(RUNS):
            runner.call("run", feeds, found)
        sizes.update(weights=runner.weights.size, workspace=runner.workspace.size)

    grown = growth(run)
    return {**sizes, "growth": grown}


def theirs(peer: str, path: Path) -> int | None:
    """The growth of this process that runs a model by a peer; None without the peer's package."""
    feeds = models.feeds(onnx.load(path))
    if not installed(peer):
        return None
    import_module(MODULES[peer])

    def run() -> None:
        loaded = PEERS[peer](path, feeds, 1)
        for _ in range(RUNS):
            loaded.run()

    return growth(run)


def bound(path: Path) -> int:
    """Bytes of the weights, and the lower bound of activations (``tilewright memory``).

    For direct convolutions: neither transformed weights nor scratch are charged.
    """
    target, machine = resolve("cpu")
    direct = tuple(
        p for p in machine.primitives if not p.approximate and not own_of(p).block_cycles
    )
    machine = machine.model_copy(update={"primitives": direct})
    state = run_pipeline(path, target, machine, until="numbers, layouts, memory")
    plan = memory_plan_of(network_of(state.network))
    return plan.weight_bytes + plan.lower_bound
