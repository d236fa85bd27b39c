"""Convolutions and products of a network, kernel by kernel: the cube's part of the peak beside its
bound, and how often each byte of an image is loaded.

    python -m benchmarks ascend-layers --networks resnet18 --no-save

``img2col`` makes the matrix of a convolution's windows on the way from L1 to L0A. So a row of an
image comes from main memory once for each tile that needs it, however many windows are over it. The
loads are counted in the emitted C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

import tilewright
from benchmarks import models
from benchmarks.papers.ascend.reader.kernels import read_kernels
from benchmarks.report import Column, Table, percent, whole
from tilewright.compiler.pipeline import resolve
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.kernels import kernel_of
from tilewright.graph.values import value_names
from tilewright.planning.domain import Kernel
from tilewright.targets.ascend.blocks import traces
from tilewright.targets.ascend.lowering.launches import SLACK, Launch
from tilewright.targets.ascend.package import FOLDER
from tilewright.targets.ascend.runner import AscendRunner
from tilewright.targets.ascend.timing import bytes_of

TITLE = "DaVinci: layers of networks on the cube"

NETWORKS: tuple[str, ...] = ("resnet50",)

CORES = (1, 32)

RATE = 4096
"""Multiplications of halves that a core does in a cycle."""


def _about(kernel: Kernel) -> str:
    """The kernel's sizes, as in ``64 to 64 channels, 3 x 3 on 56 x 56, stride 2``."""
    sizes, inputs = kernel.anchor.extents, kernel.anchor.inputs
    if kernel.anchor.operation == "matmul":
        return f"{sizes['n'] * sizes.get('m', 1)} x {sizes['ci']} x {sizes['co']}"
    window = f"{sizes['kh']} x {sizes['kw']}"
    height, width = inputs[0].shape[-2:]
    stride = dict(inputs[0].access[-2].terms)["oh"]
    channels = f"{sizes.get('ci', 1)} to {sizes.get('co', sizes.get('c', 1))} channels"
    text = f"{channels}, {window} on {height} x {width}"
    return f"{text}, stride {stride}" if stride > 1 else text


def _windows(kernel: Kernel) -> float | None:
    """Elements of the matrix of windows, for each element of the image; None for products."""
    sizes = kernel.anchor.extents
    if "kh" not in sizes:
        return None
    height, width = kernel.anchor.inputs[0].shape[-2:]
    return sizes["oh"] * sizes["ow"] * sizes["kh"] * sizes["kw"] / (height * width)


def loads(runner: AscendRunner, launches: Sequence[Launch], operand: int) -> float:
    """How often launches load each byte of a kernel's operand, on average; by their C."""
    folder = runner.parts.directory / FOLDER
    loaded, held = 0, 0
    for launch in launches:
        names = {a.name: a.bytes - SLACK for a in launch.arguments}
        kinds = {a.name for a in launch.arguments if (a.kind, a.number) == ("operand", operand)}
        held = max([held, *(names[name] for name in kinds)])
        homes = {f"gm {name}" for name in kinds}
        for program in read_kernels((folder / f"{launch.function}.c").read_text(), runner.core):
            if program.name == launch.function:
                reads = (part for block in traces(program) for step in block for part in step.reads)
                loaded += sum(bytes_of(part) for part in reads if part.home in homes)
    return loaded / held


def kernels(executable: tilewright.Executable) -> Iterator[dict[str, Any]]:
    """A row for each convolution and product that the cores compute."""
    runner = executable.runner
    assert isinstance(runner, AscendRunner)
    network = network_of(executable.graph)
    names = value_names(network)
    bounds = {entry.name: entry.granule_bound for entry in executable.manifest.kernels}
    cores = runner.parts.machine.cores
    operations = {op.symbol.data: op for op in network.walk() if isinstance(op, KernelOp)}
    for row in runner.parts.file.kernels:
        kernel = kernel_of(operations[row.symbol], names)
        if kernel.anchor.operation not in ("conv", "matmul", "depthwise_conv"):
            continue
        launches = runner.launches[row.start : row.end]
        cycles = sum(launch.cycles for launch in launches)
        peak = kernel.anchor.iterations / RATE / cores
        bound = bounds[row.symbol]
        assert bound is not None
        yield {
            "kernel": _about(kernel),
            "cycles": cycles,
            "used": peak / cycles,
            "bound": peak / bound,
            "loads": loads(runner, launches, 0),
            "windows": _windows(kernel),
            "peak": peak,
            "least": bound,
        }


def compiled(model: onnx.ModelProto, cores: int, directory: Path) -> tilewright.Executable:
    """A model's package for so many cores of an Ascend 910."""
    path = directory / "model.onnx"
    onnx.save(model, path)
    # Layer by layer: none is computed with the next.
    _, machine = resolve("ascend910", values={"cores": cores, "fusion": "off"})
    folder = directory / f"on-{cores}"
    package = tilewright.compile(path, "ascend910", machine=machine, directory=folder)
    assert isinstance(package, tilewright.Executable)
    return package


def rows(model: onnx.ModelProto, cores: Sequence[int] = CORES) -> list[dict[str, Any]]:
    """The kinds of layers by their sizes, with a kernel's cycles on average, and all together."""
    kinds: dict[str, dict[str, Any]] = {}
    total: dict[str, Any] = {"kernel": "all"}
    for count in cores:
        with TemporaryDirectory() as folder:
            layers = list(kernels(compiled(model, count, Path(folder))))
        for name in dict.fromkeys(layer["kernel"] for layer in layers):
            alike = [layer for layer in layers if layer["kernel"] == name]
            kind = kinds.setdefault(name, {"kernel": name, "windows": alike[0]["windows"]})
            kind |= {"count": len(alike), **_together(alike, count)}
            kind[f"loads_{count}"] = sum(layer["loads"] for layer in alike) / len(alike)
            kind[f"cycles_{count}"] /= len(alike)
        total |= {"count": len(layers), **_together(layers, count)}
    return [*kinds.values(), total]


def _together(layers: Sequence[dict[str, Any]], cores: int) -> dict[str, float]:
    cycles, peak, least = (
        sum(layer[key] for layer in layers) for key in ("cycles", "peak", "least")
    )
    values = {"cycles": cycles, "used": peak / cycles, "bound": peak / least}
    return {f"{key}_{cores}": value for key, value in values.items()}


def tables(networks: Sequence[str]) -> list[Table]:
    """A table for each network."""
    times = "{:.2f}".format
    columns = [Column("kernel", "layer"), Column("count", "kernels")]
    for count in CORES:
        cores = "one core" if count == 1 else f"{count} cores"
        columns += [
            Column(f"cycles_{count}", f"cycles, {cores}", whole),
            Column(f"used_{count}", "of the peak", percent),
            Column(f"bound_{count}", "its bound", percent),
            Column(f"loads_{count}", "loads of the image", times),
        ]
    columns.append(Column("windows", "windows", times))
    remarks = (
        "Cycles are a kernel's, with what follows the product in it; the bound is the granule "
        "bound: the cube with its rounding, or what main memory takes for each byte once.",
        "Loads: bytes that the emitted kernels load of an image (or matrix), over its bytes. "
        "Windows: the same of a kernel that loads the matrix of windows.",
    )
    return [
        Table(f"{name} on ascend910", columns, rows(models.build(name)[1]), remarks)
        for name in networks
    ]


__all__ = ["CORES", "NETWORKS", "TITLE", "kernels", "loads", "rows", "tables"]
