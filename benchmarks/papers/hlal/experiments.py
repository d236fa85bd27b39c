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
from benchmarks.papers.hlal.gradients import gradients
from benchmarks.papers.hlal.layers import CONVOLUTIONS, FOLDER, NAMES, model, program
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
    Column("over_compiled", "naive / compiled", "{:.2f}".format),
    Column("reached", "compiled reaches", percent),
    Column("of_bound", "HLAL, of the bound", percent),
    Column("thesis", "thesis: naive / HLAL, of hand-optimised"),
    Column("note", "compiled backward: cycles of the calls; host's moves"),
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
    Column("raw", "raw", whole),
    Column("shorter", "raw / HLAL lines", "{:.1f}".format),
    Column("thesis", "thesis"),
)


LINES_NOTES = (
    "Instructions: the words that the assembler makes of the HLAL text; blocks are loops for any "
    "size.",
    "Raw: instructions of the same network as the compiler writes them, each a line of `tilewright "
    "disasm`; none was written by hand. The thesis' 21.3 divides lines of a program of "
    "instructions by hand, which is not published, by lines of HLAL.",
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
                    **{
                        key: _mean(some, key)
                        for key in ("over_naive", "over_compiled", "reached", "of_bound")
                    },
                }
            )
    notes = (
        "HLAL: the programs in examples/hlal/layers, our best by hand, with their barriers. "
        "Without barriers (`--no-barriers`): order is left to the queue's check of ranges. "
        "Naive: a barrier after every instruction of the queue, as figure 4.1 (c). Ratios and "
        "percentages take the faster of the first two.",
        "Compiled, forward: the same layer as an ONNX model through `tilewright compile -t "
        "cambricon`. Backward: the calls of DLPlib on `cambricon` for the gradients of data, "
        "weights and bias, one after the other. What the host moves between layouts before and "
        "after them has no cycles; HLAL's programs read what the runtime has laid out by "
        "segments.",
        "Bound: the larger of the bytes that must move at 128 GB/s and, for convolutions, the "
        "matrix unit's cycles with its own rounding, without padding. What the thesis counts "
        "backward it does not say; here it is the gradients of data, weights and bias.",
        "The thesis' hand-written instructions are not published.",
    )
    return [
        Table("Ten layers, forward and backward", COLUMNS, rows, notes),
        Table("Convolution, ReLU and pooling as one block", FUSED, [alone(1, fused)]),
        Table("Lines", LINES, _with_raw(lines()), LINES_NOTES),
    ]


def measure(name: str) -> list[dict[str, Any]]:
    """A layer's rows, forward and backward."""
    found: list[dict[str, Any]] = []
    for direction in ("forward", "backward"):
        text = program(name, direction)
        assembled = _assembled(text)
        cycles, size = _run(assembled.words, assembled.data.bytes)
        free, _ = _run(_assembled(text, barriers=False).words, assembled.data.bytes)
        naive, _ = _run(_with_all_barriers(assembled), assembled.data.bytes)
        bound = _bound(name, direction, assembled)
        compiled, note = (_compiled(name), None) if direction == "forward" else gradients(name)
        found.append(
            {
                "network": name,
                "direction": direction,
                "words": len(assembled.words),
                "cycles": cycles,
                "free": free,
                "naive": naive,
                "bytes": size,
                "compiled": compiled,
                "bound": bound,
                "over_naive": naive / min(cycles, free),
                "over_compiled": naive / compiled,
                "reached": min(cycles, free) / compiled,
                "of_bound": bound / min(cycles, free),
                "note": note,
            }
        )
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
    two = (FOLDER / "two_layers.hlal").read_text()
    unused = "\n".join(line for line in two.splitlines() if "smove" not in line)
    texts = {
        "two_layers": (two, "15 lines; more than 50 a layer by hand"),
        "two_layers without listing 4.1's three SMOVEs, which nothing reads": (unused, None),
        "lenet5_train": ((FOLDER / "lenet5_train.hlal").read_text(), None),
        "resnet34": (resnet34(), "21.3 times shorter"),
    }
    rows: list[dict[str, Any]] = []
    for name, (text, thesis) in texts.items():
        kept = sum(1 for line in text.splitlines() if line.strip() and line.strip()[:2] != ";;")
        words = len(_assembled(text).words)
        rows.append(
            {
                "network": name,
                "lines": kept,
                "words": words,
                "ratio": words / kept,
                "thesis": thesis,
            }
        )
    return rows


def hlal_cycles(text: str, *, barriers: bool = True) -> float:
    """Cycles of a program."""
    assembled = _assembled(text, barriers=barriers)
    return _run(assembled.words, assembled.data.bytes)[0]


def raw_lines() -> int:
    """Instructions of ResNet34 as compiled: the lines of `tilewright disasm` that are "
    "statements."""
    from benchmarks.papers.dlir.measure import source_of
    from tilewright.compiler.api import compile

    model, options = source_of("resnet34")
    with TemporaryDirectory() as folder:
        package = compile(model, "cambricon", directory=f"{folder}/package", **options)
        runner: Any = package.runner
        return runner.instructions


def _with_raw(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    raw = alone(1, raw_lines)
    for row in rows:
        if row["network"] == "resnet34":
            row |= {"raw": raw, "shorter": raw / row["lines"]}
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
    """The program's words with a barrier after every instruction that can bear one."""
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
        if array.name in ("e", "none", "hidden"):  # zeros, or values that are seen twice
            continue
        size += int(np.prod(array.shape)) * array.element_bytes
    bound = size / 128
    if name in CONVOLUTIONS:
        of = CONVOLUTIONS[name]
        pad = of.kernel // 2
        along = of.extent * of.kernel - pad * (pad + 1)  # of windows, what lies in the image
        products = along**2 * ceil(of.outputs / 32) * ceil(of.inputs / 32)
        bound = max(bound, products * (1 if direction == "forward" else 2))
    return bound


def _compiled(name: str) -> float:
    """Cycles of a layer's model; its integers are compared with the graph interpreter's."""
    import onnx

    from tilewright.compiler.api import compile

    made = model(name)
    shape = [dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim]
    sample = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    calibration = {"x": sample["x"][None]}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(made, path)
        package = compile(path, "cambricon", calibration=calibration)
        if not package.check(sample, package.run(sample)).equal:
            raise AssertionError(f"{name}: other values than the interpreter's")
        return float(package.profile.cycles or 0)
