"""compare: cycles that other tools state for their own machines, and ours on the same work.

Each tool runs in an environment of its own below build/compare, which is made when it is first
asked for: their requirements exclude one another, and none is a dependency of this project. The
figures of both sides come from this one run; docs/compare.md says what differs between the models.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.report import Column, Table, percent, seconds, whole

if TYPE_CHECKING:
    from onnx import ModelProto

TITLE = "Other tools' machines and cycles, and ours"

ROOT = Path(__file__).parents[2]

SCRIPTS = ROOT / "benchmarks" / "compare"
"""What runs within the tools' environments, and machine files that no tool has."""

ENVIRONMENTS = ROOT / "build" / "compare"

TOOLS: Mapping[str, tuple[str, ...]] = {
    # ZigZag's reader needs six and does not say so.
    "zigzag": ("zigzag-dse==3.9.1", "six"),
    # Newer releases of NumPy refuse what SCALE-Sim 3.0.0 does with arrays of one element.
    "scalesim": ("scalesim==3.0.0", "numpy<2.3"),
    "vela": ("ethos-u-vela==5.2.0",),
}

ZIGZAG = ("tpu_like",)
"""Accelerators of ZigZag's wheel with a mapping of their own."""

PRODUCT = (256, 128, 256)
"""Rows, columns and depth of SCALE-Sim's golden example."""


def python_of(tool: str) -> Path:
    """The interpreter of a tool's environment, which is made if it is not there."""
    folder = ENVIRONMENTS / tool
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *TOOLS[tool]]
        subprocess.run(command, check=True)
        (folder / "done").touch()
    return python


def ask(tool: str, *arguments: str, given: Any = None) -> dict[str, Any]:
    """What a tool's script prints, JSON in its last line."""
    command = [str(python_of(tool)), str(SCRIPTS / f"ask_{tool}.py"), *arguments]
    text = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, check=True, cwd="/"
    ).stdout
    return json.loads(text.splitlines()[-1])


def planned(model: ModelProto, machine: Path, *options: str) -> dict[str, Any]:
    """What ``tilewright plan`` says: cycles of all kernels on the machine, and the answer."""
    import onnx
    from typer.testing import CliRunner

    from tilewright.cli.main import app

    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(model, path)
        command = ["plan", str(path), "--json", "--quiet", "--target", str(machine), *options]
        done = CliRunner().invoke(app, command)
    if done.exit_code:
        raise RuntimeError(done.output)
    told = json.loads(done.stdout)
    rows = [row for row in told["kernels"] if row["engine"] == "accelerator"]
    return {"cycles": _cycles(rows), "kernels": rows}


def _cycles(rows: Sequence[Mapping[str, Any]]) -> float:
    return sum(row["timed_cycles"] or row["predicted_cycles"] for row in rows)


def zigzag(network: str, accelerator: str) -> dict[str, Any]:
    """A network on an accelerator of ZigZag's wheel, imported by ``tilewright import-machine``."""
    import onnx
    from onnx import shape_inference
    from typer.testing import CliRunner

    from benchmarks import models
    from tilewright.cli.main import app

    model = models.build(network)[1]
    with TemporaryDirectory() as folder:
        path, machine = Path(folder) / "network.onnx", Path(folder) / "machine.toml"
        onnx.save(shape_inference.infer_shapes(model), path)
        theirs = ask("zigzag", str(path), accelerator, f"{folder}/out")
        files = [theirs["hardware"], theirs["mapping"]]
        done = CliRunner().invoke(app, ["import-machine", *files, "-o", str(machine)])
        if done.exit_code:
            raise RuntimeError(done.output)
        begin = time.perf_counter()
        ours = planned(model, machine)
        took = time.perf_counter() - begin
    anchors = [row for row in ours["kernels"] if row["schedule"]["primitive"] == "products"]
    return {
        "tool": "ZigZag 3.9.1",
        "work": f"{network} on {accelerator}",
        "theirs": theirs["cycles"],
        "ours": ours["cycles"],
        "same": _cycles(anchors),
        "bound": theirs["bound"],
        "their seconds": theirs["seconds"],
        "our seconds": took,
    }


def product(rows: int, columns: int, depth: int) -> ModelProto:
    """A product in int8, with a seeded right side."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(1)
    numbers: dict[str, Any] = {
        "w": random.integers(-127, 128, (depth, columns)).astype(np.int8),
        **{name: np.float32(value) for name, value in (("xs", 0.01), ("ws", 0.01), ("ys", 0.1))},
        **{name: np.int8(0) for name in ("xz", "wz", "yz")},
    }
    order = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", order, ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (rows, depth))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (rows, columns))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def scalesim(rows: int, columns: int, depth: int) -> dict[str, Any]:
    """A product on SCALE-Sim's example of 32 x 32 multipliers whose weights stay."""
    begin = time.perf_counter()
    ours = planned(product(rows, columns, depth), SCRIPTS / "scalesim.toml")
    took = time.perf_counter() - begin
    theirs = ask("scalesim", str(rows), str(columns), str(depth))
    folds = -(-depth // 32) * -(-columns // 32)
    return {
        "tool": "SCALE-Sim 3.0.0",
        "work": f"{rows} x {depth} by {depth} x {columns}",
        "theirs": theirs["with_prefetch"],
        "ours": ours["cycles"],
        "same": ours["cycles"],
        "bound": folds * (rows + 94),
        "their seconds": theirs["seconds"],
        "our seconds": took,
    }


SAME = {"BatchNormalization", "Relu", "Clip", "Flatten", "Reshape"}
"""Operators that are a part of the layer before them in TensorFlow Lite."""


def layers_of(model: ModelProto) -> dict[str, Any]:
    """A network as benchmarks/compare/ask_vela.py takes it."""
    from onnx import helper, shape_inference

    graph = shape_inference.infer_shapes(model).graph
    sizes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    weights = {each.name: list(each.dims) for each in graph.initializer}
    names: dict[str, str] = {}
    layers: list[dict[str, Any]] = []

    def shape(name: str) -> list[int]:
        size = sizes[name]
        return [size[0], *size[2:], size[1]] if len(size) == 4 else size

    first = graph.input[0].name
    shapes = {first: shape(first)}
    for node in graph.node:
        inputs = [names.get(name, name) for name in node.input]
        if node.op_type in SAME:
            names[node.output[0]] = inputs[0]
            if node.op_type in ("Relu", "Clip"):
                layers[-1]["relu"] = True
            continue
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        layer: dict[str, Any] = {"inputs": inputs[:1], "output": node.output[0]}
        if node.op_type == "Conv":
            alone = attributes.get("group", 1) > 1
            layer |= {
                "op": "depthwise" if alone else "conv",
                "kernel": weights[node.input[1]][2:],
                "stride": attributes.get("strides", [1])[0],
                "pads": list(attributes.get("pads", [0])),
            }
        elif node.op_type == "GlobalAveragePool":
            layer |= {"op": "average", "kernel": shapes[inputs[0]][1:3], "stride": 1, "pads": [0]}
        elif node.op_type == "Add":
            layer |= {"op": "add", "inputs": inputs}
        elif node.op_type == "Gemm":
            layer |= {"op": "dense"}
        else:
            raise ValueError(f"{node.op_type} has no place in the comparison")
        shapes[node.output[0]] = shape(node.output[0])
        layers.append(layer)
    return {"input": first, "shapes": shapes, "layers": layers}


def vela(network: str) -> dict[str, Any]:
    """A network on an Ethos-U55 of 256 multipliers with weights in flash."""
    from benchmarks import models

    model = models.build(network)[1]
    begin = time.perf_counter()
    ours = planned(model, ROOT / "examples" / "machines" / "ethos-u55.toml", "--numbers", "int8")
    took = time.perf_counter() - begin
    system = {
        "core": "ethos-u55-256",
        "system": "Ethos_U55_High_End_Embedded",
        "memory": "Shared_Sram",
    }
    begin = time.perf_counter()
    told = ask("vela", given=layers_of(model) | system)
    return {
        "tool": "Vela 5.2.0",
        "work": f"{network} on ethos-u55-256",
        "theirs": float(told["cycles_total"]),
        "ours": ours["cycles"],
        "same": ours["cycles"],
        "bound": float(told["cycles_npu"]),
        "their seconds": time.perf_counter() - begin,
        "our seconds": took,
    }


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    **{f"zigzag-{name}": lambda name=name: zigzag("resnet18", name) for name in ZIGZAG},
    "scalesim": lambda: scalesim(*PRODUCT),
    "scalesim-small": lambda: scalesim(64, 64, 64),
    "scalesim-deep": lambda: scalesim(128, 64, 1024),
    "vela": lambda: vela("mobilenet_v2"),
}

NETWORKS = tuple(ROWS)


def _ratio(value: float) -> str:
    return f"{value:.2f}"


COLUMNS = (
    Column("tool", "tool"),
    Column("work", "work"),
    Column("theirs", "their cycles", whole),
    Column("same", "ours, the same layers", whole),
    Column("ours", "ours, all layers", whole),
    Column("ratio", "ours / theirs", _ratio),
    Column("bound", "arithmetic alone", whole),
    Column("share", "of it, ours", percent),
    Column("their seconds", "their seconds", seconds),
    Column("our seconds", "our seconds", seconds),
)


def tables(networks: Sequence[str]) -> list[Table]:
    """Ask every tool, and plan the same."""
    rows: list[dict[str, Any]] = []
    for name in networks:
        row = ROWS[name]()
        print(f"{row['work']}: {row['theirs']:,.0f}, ours {row['same']:,.0f}", file=sys.stderr)
        row |= {"ratio": row["same"] / row["theirs"], "share": row["bound"] / row["same"]}
        rows.append(row)
    remarks = (
        "`ours, the same layers` leaves out what the other tool does not count: pools, sums of "
        "images and layers without weights in ZigZag's ResNet-18. Arithmetic alone is the other "
        "tool's count of cycles in which the array computes.",
        "docs/compare.md says what each side's model charges.",
    )
    return [Table("Cycles", COLUMNS, rows, remarks)]
