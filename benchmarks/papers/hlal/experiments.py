"""hlal: the built-in blocks' cycles beside the naive form, the compiler's, and a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, exp, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measuring import alone
from benchmarks.papers.hlal.layers import CONVOLUTIONS, NAMES, layer
from benchmarks.papers.hlal.resnet import resnet34
from benchmarks.report import Column, Table, percent, whole

TITLE = "HLAL's ten layers (table 4.6 of the thesis) on ACC-C, simulated"

NETWORKS = NAMES

THESIS_LAYERS = {
    "conv1": ((7, 512), (7, 2048)),
    "conv2": ((14, 512), (14, 512)),
    "conv3": ((13, 256), (13, 384)),
    "pool1": ((28, 512), (14, 512)),
    "pool2": ((56, 256), (28, 256)),
    "fc1": ((1, 9216), (1, 4096)),
    "fc2": ((1, 4096), (1, 4096)),
    "fc3": ((1, 4096), (1, 1024)),
    "lrn": ((27, 256), (27, 256)),
}
"""Table 4.6: extent and channels in and out (the LSTM layer: 3 inputs, 400 hidden, 121 outputs)."""

COLUMNS = (
    Column("network", "layer"),
    Column("direction", "direction"),
    Column("words", "instructions", whole),
    Column("cycles", "HLAL", whole),
    Column("free", "without barriers", whole),
    Column("naive", "naive", whole),
    Column("compiled", "compiled", whole),
    Column("bound", "bound", whole),
    Column("over_naive", "naive / HLAL", "{:.2f}".format),
    Column("reached", "compiled reaches", percent),
    Column("of_bound", "of the bound", percent),
    Column("thesis", "thesis: naive / HLAL, of hand-optimised"),
)

FUSED = (
    Column("network", "layers"),
    Column("cycles", "one after the other", whole),
    Column("fused", "fused", whole),
    Column("speed", "faster by", percent),
    Column("traffic", "bytes", percent),
    Column("thesis", "thesis"),
)

LINES = (
    Column("network", "program"),
    Column("lines", "lines of HLAL", whole),
    Column("words", "instructions", whole),
    Column("ratio", "instructions a line", "{:.1f}".format),
    Column("thesis", "thesis"),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Measure the layers."""
    rows = [row for name in networks for row in alone(1, measure, name)]
    for direction, thesis in (("forward", "1.20, 95 %"), ("backward", "1.14, 96 %")):
        some = [row for row in rows if row["direction"] == direction]
        if some:
            rows.append(
                {
                    "network": "geometric mean",
                    "direction": direction,
                    "thesis": thesis,
                    **{key: _mean(some, key) for key in ("over_naive", "reached", "of_bound")},
                }
            )
    notes = (
        "HLAL: the built-in blocks with their barriers, at the segments of "
        "benchmarks/papers/hlal/layers.py. Without barriers: order is left to the queue's check of "
        "ranges. Naive: a barrier behind every instruction of the queue, as figure 4.1 (c).",
        "Compiled: the same layer as an ONNX model through `tilewright compile -t cambricon`; it "
        "reaches that much of the better HLAL's speed.",
        "Bound: the larger of the bytes that must move at 128 GB/s and, for convolutions, the "
        "matrix unit's cycles with its own rounding. What the thesis counts backward it does not "
        "say; here it is the gradients of data, weights and bias.",
        "The thesis' hand-written instructions are not published.",
    )
    return [
        Table("Ten layers, forward and backward", COLUMNS, rows, notes),
        Table("Convolution, ReLU and pooling as one block", FUSED, [alone(1, fused)]),
        Table("Lines", LINES, lines()),
    ]


def measure(name: str) -> list[dict[str, Any]]:
    """A layer's rows, forward and backward."""
    of = layer(name)
    found: list[dict[str, Any]] = []
    for direction, text in (("forward", of.forward), ("backward", of.backward)):
        program = _assembled(text)
        cycles, size = _run(program.words, program.data.bytes)
        free, _ = _run(_assembled(text, barriers=False).words, program.data.bytes)
        naive, _ = _run(_with_all_barriers(program), program.data.bytes)
        bound = _bound(name, direction, program)
        row: dict[str, Any] = {
            "network": name,
            "direction": direction,
            "words": len(program.words),
            "cycles": cycles,
            "free": free,
            "naive": naive,
            "bytes": size,
            "bound": bound,
            "over_naive": naive / cycles,
            "of_bound": bound / cycles,
        }
        if direction == "forward" and of.model is not None:
            row["compiled"] = _compiled(of.model())
            row["reached"] = min(cycles, free) / row["compiled"]
        found.append(row)
    return found


def fused() -> dict[str, Any]:
    """VGG's convolution in 56 x 56 (256 channels) with ReLU and 2x2 pooling."""
    data = ".static_ro\n@tensor x, 1,56,56,256, 1,1,56,32\n@filter w, 256,3,3,256, 64,1,3,32\n"
    data += "@tensor b, 256,256\n.static_rw\n@tensor z, 1,28,28,256, 1,1,28,64\n"
    between = "@tensor y, 1,56,56,256, 1,1,56,64\n"
    apart = _assembled(
        ".code\n@block_fw_conv_relu y, x, w, b, #1, #1\n@block_fw_pool_max z, y, #2, #2, #0\n"
        + data + between
    )  # fmt: skip
    joined = _assembled(".code\n@block_fw_conv_relu_pool z, x, w, b, #1, #1, #2\n" + data)
    cycles, size = _run(apart.words, apart.data.bytes)
    less, fewer = _run(joined.words, joined.data.bytes)
    return {
        "network": "conv 3x3, 56 x 56 x 256, ReLU, pool 2x2",
        "cycles": cycles,
        "fused": less,
        "speed": cycles / less - 1,
        "traffic": fewer / size - 1,
        "thesis": "2 % faster, 10.16 % fewer bytes",
    }


def lines() -> list[dict[str, Any]]:
    """Lines of programs (without remarks and empty ones) and the words that they become."""
    folder = Path(__file__).parents[3] / "examples" / "hlal"
    thesis = {
        "two_layers": "15 lines; more than 50 a layer by hand",
        "resnet34": "21.3 times shorter",
    }
    texts = {name: (folder / f"{name}.hlal").read_text() for name in ("two_layers", "lenet5_train")}
    rows: list[dict[str, Any]] = []
    for name, text in (*texts.items(), ("resnet34", resnet34())):
        kept = [line for line in text.splitlines() if line.strip() and line.strip()[:2] != ";;"]
        program = _assembled(text)
        rows.append(
            {
                "network": name,
                "lines": len(kept),
                "words": len(program.words),
                "ratio": len(program.words) / len(kept),
                "thesis": thesis.get(name),
            }
        )
    return rows


def _mean(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    values = [row[key] for row in rows if row.get(key)]
    return exp(sum(map(log, values)) / len(values)) if values else None


def _assembled(text: str, barriers: bool = True) -> Any:
    from tilewright.targets.cambricon.hlal.assemble import assemble
    from tilewright.targets.cambricon.hlal.machines import machine_named
    from tilewright.targets.cambricon.hlal.run import sizes_of

    return assemble(text, "layer.hlal", sizes_of(machine_named("cambricon")), barriers=barriers)


def _run(words: Any, size: int) -> tuple[float, int]:
    """Cycles and bytes of main memory, at values that are zero: time does not depend on them."""
    from tilewright.targets.cambricon.hlal.machines import machine_named
    from tilewright.targets.cambricon.simulate.simulator import run

    result = run(words, machine_named("cambricon"), np.zeros(max(size, 64), np.uint8))
    return result.cycles, result.main_bytes


def _with_all_barriers(program: Any) -> Any:
    """The program's words with a barrier behind every instruction that can bear one."""
    from tilewright.targets.cambricon.isa import BY_MNEMONIC
    from tilewright.targets.cambricon.statements import assemble_statements

    found: list[Any] = []
    for one in program.statements:
        found.append(one)
        bears = one.mnemonic and "barrier" in BY_MNEMONIC[one.mnemonic].by_name
        if bears and not one.modifiers.get("barrier"):
            found.append(replace(one, label=None, modifiers={**one.modifiers, "barrier": 1}))
    return assemble_statements(found)


def _bound(name: str, direction: str, program: Any) -> float:
    """Cycles that no program for the layer can do without."""
    size = 0
    for array in program.data.arrays:
        if array.name in ("d2", "hidden"):  # the same values, cut otherwise or seen twice
            continue
        size += int(np.prod(array.shape)) * array.element_bytes
    bound = size / 128
    if name in CONVOLUTIONS:
        of = CONVOLUTIONS[name]
        rows = of.extent * of.kernel - 2 * of.pad  # without those above and below the image
        products = rows * of.extent * ceil(of.outputs / 32) * ceil(of.kernel * of.inputs / 32)
        bound = max(bound, products * (1 if direction == "forward" else 2))
    return bound


def _compiled(model: Any) -> float:
    import onnx

    from tilewright.compiling import compile

    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    sample = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(model, path)
        package = compile(path, "cambricon", calibration=sample)
        package.run(sample)
        return float(package.profile.cycles or 0)
