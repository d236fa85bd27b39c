"""More memory gives no slower plan, at the sizes that are tried here."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import tilewright
from tilewright.compiler.pipeline import resolve

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRATCHPADS = ("feature", "weight", "result")


def test_more_memory_gives_no_slower_plan() -> None:
    cycles: list[float] = []
    for kilobytes in (16, 32, 64):
        values = {f"memory.{name}.bytes": kilobytes * 1024 for name in SCRATCHPADS}
        _, machine = resolve(str(EXAMPLES / "machines" / "small-npu.toml"), None, values)
        package = tilewright.compile(
            EXAMPLES / "lenet5" / "lenet5.onnx", "generic", machine=machine
        )
        cycles.append(package.summary()["predicted_cycles"])
    assert all(less >= more for less, more in pairwise(cycles)) and cycles[0] > cycles[-1]
