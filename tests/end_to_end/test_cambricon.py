"""Whole networks on ACC-C in its three sizes: bit for bit, on the accelerator, as HLAL, traced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.end_to_end.end_to_end_models import LENET, ROOT, image
from tilewright.runtime import Executable
from tilewright.targets.cambricon.hlal.assemble import assemble
from tilewright.targets.cambricon.hlal.rules import Sizes
from tilewright.targets.cambricon.machine import CONFIGURATIONS, Configuration

CIFAR = ROOT / "examples" / "caffe" / "cifar10_quick.prototxt"


def checked(path: Path, target: str, folder: Path) -> Executable:
    if path.suffix == ".onnx":
        made = tilewright.compile(path, target, directory=folder / "package")
        sample = image(onnx.load(path))
    else:
        shapes = {"data": (1, 3, 32, 32)}
        made = tilewright.compile(path, target, directory=folder / "package", shapes=shapes)
        sample = {"data": np.random.default_rng(3).normal(0, 1, (1, 3, 32, 32)).astype("f4")}
    outputs = made.run(sample, trace=folder / "trace.json")
    check = made.check(sample, outputs)
    assert check.equal and check.exact and check.mismatches == 0
    # What converts the image at the border is the host's; all that computes is the accelerator's.
    assert not [k.symbol for k in made.profile.kernels if k.on_host and k.nodes]
    return made


NETWORKS = dict(zip(CONFIGURATIONS, (LENET, CIFAR, LENET), strict=True))
"""Of each size."""


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("size", NETWORKS, ids=lambda size: size.name)
def test_networks_run_as_loops(size: Configuration, tmp_path: Path) -> None:
    made = checked(NETWORKS[size], size.name, tmp_path)
    program = tmp_path / "package" / "program"
    words = np.frombuffer((program / "program.bin").read_bytes(), "<u8")
    # Real loops: some hundreds of words for hundreds of thousands of products.
    assert words.size < 6000
    # The compiler's output is HLAL that the assembler takes, and means the same words.
    text = (program / "program.hlal").read_text()
    assembled = assemble(text, "program.hlal", Sizes(size.vsm, size.msm, size.lanes))
    np.testing.assert_array_equal(assembled.words, words)
    assert "conv1" in text
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    nodes = {name for event in events for name in event["args"].get("nodes", [])}
    assert "conv1" in nodes
    summary = made.summary()
    assert summary["cycles"] >= summary["bound_cycles"]


@pytest.mark.slow
def test_weights_lie_by_segment_and_the_words_say_where(tmp_path: Path) -> None:
    """Other weights in the package give other results: they are read from there, not kept."""
    made = checked(LENET, "cambricon", tmp_path)
    sample = image(onnx.load(LENET))
    before = next(iter(made.run(sample).values()))
    runner = made.runner
    runner.main[: runner.parts.weights.size] = 0  # pyright: ignore[reportAttributeAccessIssue]
    after = next(iter(made.run(sample).values()))
    assert not np.array_equal(before, after)
