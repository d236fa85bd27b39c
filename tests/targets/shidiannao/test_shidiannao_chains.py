"""Layers of ShiDianNao that are one kernel: what lies in NBout goes to NBin, not to main memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tilewright
from tilewright.compiler.fuse import fuse
from tilewright.machine import Machine
from tilewright.runtime.executable import Executable
from tilewright.targets.shidiannao import LARGE

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"


def run(machine: Machine, images: list[np.ndarray]) -> tuple[Executable, list[np.ndarray]]:
    executable = tilewright.compile(LENET, LARGE, machine=machine)
    outputs: list[np.ndarray] = []
    for image in images:
        given = {executable.manifest.inputs[0].name: image}
        results = executable.run(given)
        assert executable.check(given, results).mismatches == 0
        outputs += results.values()
    return executable, outputs


def test_a_small_network_is_faster_in_chains_and_its_numbers_are_the_same() -> None:
    machine = LARGE.machine()
    source = np.random.default_rng(3)
    images = [source.random((1, 1, 32, 32), np.float32) for _ in range(2)]
    fused, values = run(machine, images)
    apart, others = run(machine.model_copy(update={"fusions": ()}), images)
    assert all(np.array_equal(a, b) for a, b in zip(values, others, strict=True))
    assert len(np.unique(np.stack(values))) > 10
    kernels = [
        sum(kernel.engine == "accelerator" for kernel in executable.manifest.kernels)
        for executable in (fused, apart)
    ]
    assert kernels[0] < kernels[1]
    assert fused.profile.cycles is not None and apart.profile.cycles is not None
    assert fused.profile.cycles < 0.85 * apart.profile.cycles


def test_layers_that_do_not_lie_in_the_buffers_whole_stay_apart() -> None:
    """And the reason says by how much NBin, or SB, is too small."""
    machine = LARGE.machine().with_values({"memory.nbin.bytes": 2048})
    report = fuse(LENET, LARGE, machine, searches=("exact",))
    problems = {
        candidate.fusion: candidate.problem
        for candidate in report.candidates
        if candidate.problem is not None
    }
    problem = problems["conv-pool-conv-pool"]
    assert problem.code == "fusion-capacity"
    assert "nbin" in problem.reason and "memory.nbin.bytes" in problem.help
