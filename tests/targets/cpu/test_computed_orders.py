"""Products of computed matrices by either axis, read row by row or laid out: against NumPy."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.slow import but_fast

import tilewright
from tilewright.runtime import Executable

MOST = 48


def product(
    a: Sequence[int], b: Sequence[int], order: Sequence[int] | None, bias: bool, number: int
) -> tuple[list[onnx.NodeProto], dict[str, Sequence[int]]]:
    """Nodes of a product of ``a{number}`` and ``b{number}``, transposed by ``order``."""
    nodes, w, y = list[onnx.NodeProto](), f"b{number}", f"y{number}"
    inputs: dict[str, Sequence[int]] = {f"a{number}": a, w: b}
    if order is not None:
        nodes.append(helper.make_node("Transpose", [w], [f"t{number}"], perm=order))
        w = f"t{number}"
    product = f"p{number}" if bias else y
    nodes.append(helper.make_node("MatMul", [f"a{number}", w], [product], name=f"product{number}"))
    if bias:
        inputs[f"c{number}"] = [b[order[-1]] if order is not None else b[-1]]
        nodes.append(helper.make_node("Add", [product, f"c{number}"], [f"s{number}"]))
        nodes.append(helper.make_node("Relu", [f"s{number}"], [y]))
    return nodes, inputs


def compiled(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int]],
    count: int,
    path: Path,
    cpu: str = "portable",
) -> Executable:
    """For a processor whose plans are the same wherever tests run, and which all run."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "products",
        [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info(f"y{number}", TensorProto.FLOAT, None) for number in range(count)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return tilewright.compile(path, cpu=cpu)


def primitives(package: Executable) -> set[str]:
    """The primitives that products were planned on."""
    found = {k.schedule.split()[0] for k in package.manifest.kernels if k.schedule}
    return {name for name in found if name.startswith("matmul")}


@pytest.mark.parametrize("seed", but_fast(range(3), [0]))
def test_rows_and_columns(seed: int, tmp_path: Path) -> None:
    """Few rows by matrices of any size, in either order of axes and between batches."""
    draw, values = random.Random(seed), np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    shapes: dict[str, Sequence[int]] = {}
    orders: list[tuple[int, ...] | None] = []
    for number in range(12):
        m, k, n = draw.randint(1, 9), draw.randint(1, MOST), draw.randint(1, MOST)
        if number % 4 == 3:  # Attention's keys: [batch, sequence, heads, channels].
            a, b, order = (2, 3, m, k), (2, n, 3, k), (0, 2, 3, 1)
        elif number % 2:
            batch = tuple(draw.choices((1, 2, 3), k=draw.choice((0, 1, 2))))
            a, b = (*batch, m, k), (*batch[draw.randint(0, len(batch)) :], n, k)
            order = (*range(len(b) - 2), len(b) - 1, len(b) - 2)
        else:
            a, b, order = (m, k), (k, n), None
        more, inputs = product(a, b, order, bool(number % 3), number)
        nodes += more
        shapes |= inputs
        orders.append(order)
    package = compiled(nodes, shapes, len(orders), tmp_path / "products.onnx")
    assert "matmul_rows" in primitives(package)
    feeds = {
        name: values.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    found = package.run(feeds)
    for number, order in enumerate(orders):
        b = feeds[f"b{number}"].astype(np.float64)
        wanted = feeds[f"a{number}"] @ (b if order is None else b.transpose(order))
        if f"c{number}" in feeds:
            wanted = np.maximum(wanted + feeds[f"c{number}"], 0.0)
        np.testing.assert_allclose(found[f"y{number}"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cpu", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize(
    ("rows", "order", "primitive"),
    [(1, (1, 0), ""), (2, None, "matmul_rows"), (192, (1, 0), ""), (192, None, "")],
)
def test_many_rows_are_worth_a_copy(
    rows: int, order: tuple[int, int] | None, primitive: str, cpu: str, tmp_path: Path
) -> None:
    nodes, shapes = product((rows, 256), (256, 256), order, False, 0)
    package = compiled(nodes, shapes, 1, tmp_path / "product.onnx", cpu)
    assert ("matmul_rows" in primitives(package)) == bool(primitive)
    # A transpose of its own is never made: the copy that lays weights out takes either order.
    assert len(package.manifest.kernels) == (1 if primitive else 2)


def test_a_column_of_inputs_is_read_across(tmp_path: Path) -> None:
    """The first operand is transposed as well: its rows lie apart."""
    values = np.random.default_rng(5)
    nodes = [helper.make_node("Gemm", ["a0", "b0"], ["y0"], transA=1, transB=1)]
    shapes: dict[str, Sequence[int]] = {"a0": (37, 3), "b0": (21, 37)}
    package = compiled(nodes, shapes, 1, tmp_path / "product.onnx")
    feeds = {
        name: values.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    wanted = feeds["a0"].T.astype(np.float64) @ feeds["b0"].T
    np.testing.assert_allclose(package.run(feeds)["y0"], wanted, rtol=1e-4, atol=1e-4)
