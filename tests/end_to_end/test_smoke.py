"""Every bundled target compiles a network, builds it as users do, runs it, and is right."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tilewright
from tilewright.system.choices import target_names
from tilewright.targets.base import find_target

ROOT = Path(__file__).parents[2]
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"
MACHINES = sorted((ROOT / "examples" / "machines").glob("*.toml"))
"""The generic target runs machine files, and has no machine of its own."""

DPU_SIZES = [name for name in target_names() if name.startswith("dpu-") and name != "dpu-b4096"]
"""Sizes of one core, which tests/targets/dpu has."""

TARGETS = [
    name
    for name in target_names()
    if name != "generic" and name not in DPU_SIZES and find_target(name).runs
]

SIZES = [
    *("cambricon-m", "cambricon-s", "cambricon-x-l", "cambricon-x-m"),
    *("shidiannao-l", "shidiannao-s", "sunway-chip", "zu9"),
]
"""Other sizes of a machine: slow, and not smoke."""


@pytest.mark.slow
@pytest.mark.usefixtures("planned_anew", "built_in_full")
@pytest.mark.parametrize(
    "target",
    [
        *SIZES,
        *(
            pytest.param(name, marks=pytest.mark.smoke)
            for name in [*TARGETS, str(MACHINES[0].relative_to(ROOT))]
            if name not in SIZES
        ),
    ],
)
def test_lenet5(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    held_out = np.load(LENET.with_name("held_out.npz"))
    images = held_out["images"][:3].astype(np.float32) / 16
    executable = tilewright.compile(LENET, target)
    session = onnxruntime.InferenceSession(LENET, providers=["CPUExecutionProvider"])
    for image in images:
        inputs = {"image": image[None]}
        outputs = executable.run(inputs)
        assert executable.check(inputs, outputs).equal
        (expected,) = session.run(["probabilities"], inputs)
        tolerance = 1e-5 if target == "cpu" else 0.1
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=tolerance)
