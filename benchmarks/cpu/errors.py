"""How exact the cpu target's convolutions are: each method against float64, and ONNX Runtime.

    python -m benchmarks.cpu.errors

Layers of well-known networks on normal data with weights of He's variance; the largest error of an
output, relative to the largest output. Every form of Winograd's method that the planner would take
for the layer, if it were the only one, has a row, and so have two and three pieces of bfloat16 on
processors with matrix tiles.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tilewright.compiler.api import compile as compile_model
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.capabilities import own_of

LAYERS = (
    *((16, 16, 112, 3), (64, 64, 56, 3), (128, 128, 28, 3), (256, 256, 14, 3), (512, 512, 14, 3)),
    *((512, 512, 7, 3), (64, 64, 224, 3), (48, 128, 27, 5), (32, 96, 28, 5), (48, 128, 7, 5)),
    *((64, 64, 56, 1), (512, 512, 14, 1), (2048, 512, 7, 1)),
)
"""Input channels, output channels, extents of the image and the window; the size is kept."""

WINOGRAD = ("winograd_2", "winograd_4", "winograd_6", "winograd_2_5x5")
"""Primitives, each also with weights that are transformed as it runs."""

FORMS = (
    *(name + end for name in WINOGRAD for end in ("", "_plain")),
    "conv_pieces",
    "conv_pieces_3",
)

HEAD = "| layer | method | its error | direct | ONNX Runtime |\n|---|---|---|---|---|"


def layer(
    ci: int, co: int, size: int, taps: int = 3
) -> tuple[onnx.ModelProto, NDArray[np.float32]]:
    """A convolution with random weights, and an image."""
    random = np.random.default_rng((ci, co, size))
    w = random.standard_normal((co, ci, taps, taps)) * np.sqrt(2 / (taps * taps * ci))
    w = w.astype(np.float32)
    x = random.standard_normal((1, ci, size, size)).astype(np.float32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[taps // 2] * 4)],
        "layer",
        [value("x", 1, x.shape)],
        [value("y", 1, (1, co, size, size))],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, x


def exact(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """The layer in float64, one tap after another."""
    w = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    size, taps = x.shape[-1], w.shape[-1]
    border = (taps // 2, taps // 2)
    padded = np.pad(x[0].astype(np.float64), ((0, 0), border, border))
    result = np.zeros((len(w), size, size))
    for row in range(taps):
        for column in range(taps):
            part = padded[:, row : row + size, column : column + size]
            result += np.tensordot(w[:, :, row, column], part, 1)
    return result[None]


def measure(
    ci: int, co: int, size: int, folder: Path, taps: int = 3, form: str = "winograd_4"
) -> str | None:
    """One row of the table: a layer by one of the primitives; None if the planner prefers none."""
    model, x = layer(ci, co, size, taps)
    path = folder / "layer.onnx"
    onnx.save(model, path)
    expected = exact(model, x)

    def error(found: NDArray[np.float32]) -> str:
        return f"{float(np.abs(found - expected).max() / np.abs(expected).max()):.1e}"

    errors: list[str] = []
    whole = machine().with_values({"memory_growth": 1e6})
    direct = tuple(p for p in whole.primitives if not p.approximate and not own_of(p).block_cycles)
    own = tuple(p for p in whole.primitives if p.name == form)
    for kept in ((*own, *direct), direct):
        package = compile_model(path, machine=whole.model_copy(update={"primitives": kept}))
        names = [k.schedule.partition(" ")[0] for k in package.manifest.kernels]
        if kept != direct and form not in names:
            return None
        errors.append(error(package.run({"x": x})["y"]))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    theirs = error(np.asarray(session.run(None, {"x": x})[0]))
    where = f"{ci} x {co} x {size} x {size}" + (f", {taps} x {taps}" if taps != 3 else "")
    return f"| {where} | {form} | {errors[0]} | {errors[1]} | {theirs} |"


def main() -> None:
    """Print the table."""
    print(HEAD)
    with tempfile.TemporaryDirectory() as scratch:
        for ci, co, size, taps in LAYERS:
            for form in FORMS:
                row = measure(ci, co, size, Path(scratch), taps, form)
                if row is not None:
                    print(row, flush=True)


if __name__ == "__main__":
    main()
