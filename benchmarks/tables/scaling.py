"""scaling: the processor's seconds in which networks of n, 2n and 4n nodes are compiled."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import alone
from benchmarks.report import Column, Table, seconds, whole

TITLE = "Time of compiling by the number of nodes"

SMALL_NPU = str(Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml")

WIDTH = 4
"""Elements of each value: the time is that of the nodes."""

WARM = 2
"""Nodes of the network that is compiled first: imports and compiled loops are not counted."""


@dataclass(frozen=True)
class Family:
    """Networks of any number of nodes, and the target that they are compiled for."""

    target: str
    least: int
    """n; its double and quadruple are compiled, too."""
    make: Callable[[int], Any]
    """An ONNX model of so many nodes, or of one node with so many operands."""


def _model(nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str], width: int) -> Any:
    from onnx import TensorProto, helper

    def described(names: Sequence[str]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]

    given = [helper.make_tensor_value_info(i, TensorProto.FLOAT, [width]) for i in inputs]
    graph = helper.make_graph(nodes, "scaling", given, described(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def chain(operator: str) -> Callable[[int], Any]:
    """``n`` nodes in a row."""

    def make(n: int) -> Any:
        from onnx import helper

        nodes = [helper.make_node(operator, [f"v{i}"], [f"v{i + 1}"]) for i in range(n)]
        return _model(nodes, ["v0"], [f"v{n}"], WIDTH)

    return make


def joined(operator: str, **attributes: Any) -> Callable[[int], Any]:
    """One node of ``n`` inputs."""

    def make(n: int) -> Any:
        from onnx import helper

        names = [f"x{i}" for i in range(n)]
        return _model([helper.make_node(operator, names, ["y"], **attributes)], names, ["y"], WIDTH)

    return make


def split(n: int) -> Any:
    """One node of ``n`` outputs."""
    from onnx import helper

    names = [f"y{i}" for i in range(n)]
    return _model([helper.make_node("Split", ["x"], names, axis=0)], ["x"], names, WIDTH * n)


FAMILIES: Mapping[str, Family] = {
    "Relu in a row": Family("cpu", 5000, chain("Relu")),
    "kernels on the host": Family(SMALL_NPU, 500, chain("Sin")),
    "Sum of n inputs": Family("cpu", 200, joined("Sum")),
    "Sum of n inputs, on cambricon": Family("cambricon", 100, joined("Sum")),
    "Concat of n inputs": Family("cpu", 200, joined("Concat", axis=0)),
    "Split into n": Family("cpu", 200, split),
}

NETWORKS = tuple(FAMILIES)

FLOOR = (5000, 10000, 20000)


def run(name: str, n: int) -> float:
    """Compile one network; the processor's seconds, without the C compiler's."""
    import onnx

    import tilewright

    family = FAMILIES[name]
    with TemporaryDirectory() as folder:
        spent = 0.0
        for nodes in (WARM, n):
            path = Path(folder) / f"{nodes}.onnx"
            onnx.save(family.make(nodes), path)
            begin = time.process_time()
            tilewright.compile(path, family.target)
            spent = time.process_time() - begin
        return spent


def floor(n: int) -> dict[str, Any]:
    """What xDSL alone takes to make, verify, copy and print ``n`` operations of one operand."""
    from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType, f32
    from xdsl.ir import Block, Region
    from xdsl.irdl import (
        IRDLOperation,
        irdl_op_definition,
        opt_prop_def,
        result_def,
        var_operand_def,
    )
    from xdsl.printer import Printer

    @irdl_op_definition
    class Map(IRDLOperation):
        name = "floor.map"
        inputs = var_operand_def(TensorType)
        result = result_def(TensorType)
        node = opt_prop_def(StringAttr)

    kind, row, clock = TensorType(f32, [WIDTH]), dict[str, Any](nodes=n), time.process_time()

    def lap(what: str) -> None:
        nonlocal clock
        row[what], clock = time.process_time() - clock, time.process_time()

    block = Block(arg_types=[kind])
    value: Any = block.args[0]
    for index in range(n):
        named = {"node": StringAttr(f"Relu_{index}")}
        op = Map.build(operands=[[value]], result_types=[kind], properties=named)
        block.add_op(op)
        value = op.result
    module = ModuleOp(Region(block))
    lap("make")
    module.verify()
    lap("verify")
    module.clone()
    lap("copy")
    Printer(io.StringIO()).print_op(module)
    lap("print")
    return row


def tables(networks: Sequence[str]) -> list[Table]:
    """Compile each family at three sizes, each network in a process of its own."""
    rows: list[dict[str, Any]] = []
    for name in networks:
        least = FAMILIES[name].least
        sizes = (least, 2 * least, 4 * least)
        spent = [alone(1, run, name, n) for n in sizes]
        rows.append(
            {
                "network": name,
                "target": Path(FAMILIES[name].target).stem,
                "n": least,
                **dict(zip(("once", "twice", "four"), spent, strict=True)),
                "ratio": spent[2] / spent[0],
                "node": spent[2] / sizes[2] * 1e3,
            }
        )
    columns = (
        Column("network", "network"),
        Column("target", "target"),
        Column("n", "n", whole),
        Column("once", "n: s", seconds),
        Column("twice", "2n: s", seconds),
        Column("four", "4n: s", seconds),
        Column("ratio", "4n / n", seconds),
        Column("node", "ms a node at 4n", seconds),
    )
    remarks = (
        "Seconds of the processor, from the model's file to the package; what is written in C is "
        "built when it first runs. Time that grows linearly has a ratio of 4.",
        "A node has at most 1,024 inputs or outputs, an equation of Einsum 512 characters, so that "
        "larger ones are refused at once (`onnx-too-large`).",
        "On cambricon each of a sum's additions is a kernel of the accelerator, which is planned "
        "once and lowered to instructions for its own addresses.",
    )
    floors = Table(
        "What xDSL alone takes for operations in a row",
        (
            Column("nodes", "operations", whole),
            *(Column(what, f"{what}: s", seconds) for what in ("make", "verify", "copy", "print")),
        ),
        [alone(1, floor, n) for n in FLOOR],
        (
            "A compilation makes each operation once, verifies it once or more, copies it once and "
            "prints what is left of it in the package: the floor under the table above.",
        ),
    )
    return [Table("Seconds of the processor", columns, rows, remarks), floors]
