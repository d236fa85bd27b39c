"""A small network, and its package on a machine, for the tests of the page."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from tests.report.report_models import save

import tilewright

ROOT = Path(__file__).parents[3]
SMALL_NPU = str(ROOT / "examples" / "machines" / "small-npu.toml")
TERN = str(ROOT / "examples" / "targets" / "tern" / "tern_target" / "tern.toml")

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""A node's name that ends a script's element and begins an image where it is not escaped."""


def network(path: Path, first: str = "first") -> Path:
    """Two convolutions around a pool, and their sum with a branch; ``first`` names a node."""
    random = np.random.default_rng(0)

    def drawn(*size: int) -> np.ndarray:
        return random.normal(0, 0.3, size).astype(np.float32)

    node = helper.make_node
    nodes: list[onnx.NodeProto] = [
        node("Conv", ["x", "w1", "b1"], ["c1"], first, pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], "relu"),
        node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2"], ["c2"], "second"),
        node("Conv", ["p1", "w3"], ["c3"], "third", pads=[1, 1, 1, 1]),
        node("Add", ["c2", "c3"], ["y"], "sum"),
    ]
    return save(
        path, nodes, (1, 3, 24, 24), "y",
        w1=drawn(16, 3, 3, 3), b1=drawn(16), w2=drawn(24, 16, 1, 1), w3=drawn(24, 16, 3, 3),
    )  # fmt: skip


@cache
def compiled(folder: Path, target: str, first: str = "first") -> tilewright.Executable:
    """The network's package on a target, made once."""
    return tilewright.compile(network(folder / "made.onnx", first), target)


def image(seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(0, 1, (1, 3, 24, 24)).astype(np.float32)}
