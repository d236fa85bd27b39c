"""Floats of 16 bits on cpu: conversions bit for bit, products against float64, every processor."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.slow import crossed
from tests.targets.cpu.built_networks import missing
from tests.targets.cpu.kernel_harness import PLAIN, Maker

import tilewright
from tilewright.codegen.c import compiler as building
from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.logic import CastOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.pooling import MaxPoolOp
from tilewright.machine import Machine
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import PROCESSORS, this_processor
from tilewright.targets.cpu.runner import CpuRunner

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
PRECISION = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half a unit in the last place, relative."""

NATIVE = (*FLAGS, *this_processor().flags)


def every_number(dtype: np.dtype[np.generic]) -> np.ndarray:
    """All numbers of a format as float32, what lies between them, and random floats."""
    exact = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    finite = np.sort(exact[np.isfinite(exact)])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    near = np.concatenate([np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)])
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    return np.concatenate([exact, middle, near, random, [np.float32(3.4e38), np.float32(1e-40)]])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    ("described", "flags"),
    [(PLAIN, FLAGS), (machine(), NATIVE), (machine(), (*NATIVE, "-mno-f16c"))],
    ids=["plain", "native", "without instructions"],
)
def test_conversions_are_exact(name: str, described: Machine, flags: Sequence[str]) -> None:
    values = every_number(DTYPES[name])
    m = Maker(described)
    x = m.input(values.shape)
    m.inputs["in0"] = values
    rounded = m.kernel([(CastOp, [x], {"to": name})])
    back = m.kernel([(CastOp, [rounded], {"to": "float32"})])
    both = m.kernel([(CastOp, [x], {"to": name}), (CastOp, [0], {"to": "float32"})])
    m.finish(back, both)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(DTYPES[name]).astype(np.float32)
    for found in m.run(flags).values():
        assert np.isnan(found[np.isnan(expected)]).all()
        there = ~np.isnan(expected)
        assert np.array_equal(found[there].view(np.uint32), expected[there].view(np.uint32))


# n, ci, h, w | co, kernel, stride, pad, group
CONVOLUTIONS = (
    (1, 3, 17, 19, 24, 3, 2, 1, 1),
    (1, 33, 9, 11, 40, 1, 1, 0, 1),
    (2, 7, 8, 6, 20, 3, 1, 1, 1),
    (1, 40, 10, 9, 40, 3, 1, 1, 40),
    (1, 12, 7, 7, 20, 3, 2, 1, 2),
)
PRODUCTS = ((1, 65, 40), (9, 48, 96), (30, 33, 17))


def model_of(nodes: list[onnx.NodeProto], x: np.ndarray, **weights: np.ndarray) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "short",
        [value("x", TensorProto.FLOAT, x.shape)],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def run(
    model: onnx.ModelProto,
    name: str,
    x: np.ndarray,
    folder: Path,
    flags: Sequence[str] = (),
    **options: str,
) -> tuple[np.ndarray, list[str]]:
    """The output, and the primitives."""
    path = folder / "short.onnx"
    onnx.save(model, path)
    shutil.rmtree(folder / "package", ignore_errors=True)
    made = tilewright.compile(path, numbers=name, directory=folder / "package", **options)
    used = [record.schedule.partition(" ")[0] for record in made.manifest.kernels]
    if not flags:
        return made.run({"x": x})["y"], used
    runner = CpuRunner(made.directory / "program", flags)
    return runner.run({"x": x}).outputs["y"], used


def near(found: np.ndarray, exact: np.ndarray, sizes: np.ndarray, name: str) -> None:
    """Within a rounding of the result, and those of a float32 sum of terms of such a size."""
    allowed = PRECISION[name] * np.abs(exact) * 1.01 + 2.0**-20 * sizes
    assert (np.abs(found - exact) <= allowed).all()
    assert np.abs(exact).max() > 0


def exact_convolution(x: np.ndarray, w: np.ndarray, stride: int, pad: int, g: int) -> np.ndarray:
    """In float64, one tap after another."""
    n, _, h, wide = x.shape
    co, ci, k, _ = w.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh, ow = (h + 2 * pad - k) // stride + 1, (wide + 2 * pad - k) // stride + 1
    y = np.zeros((n, co, oh, ow))
    for group in range(g):
        source = padded[:, group * ci : (group + 1) * ci]
        rows = slice(group * (co // g), (group + 1) * (co // g))
        for i in range(k):
            for j in range(k):
                part = source[:, :, i : i + stride * oh : stride, j : j + stride * ow : stride]
                part = part[:, :, :oh, :ow]
                y[:, rows] += np.einsum("oc,nchw->nohw", w[rows, :, i, j].astype(np.float64), part)
    return y


def rounded(array: np.ndarray, name: str) -> np.ndarray:
    return array.astype(DTYPES[name]).astype(np.float32)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=[pytest.mark.slow] * (s[1] == 7)) for s in CONVOLUTIONS],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_convolutions(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    n, ci, h, w, co, kernel, stride, pad, group = shape
    random = np.random.default_rng(shape)
    x = random.standard_normal((n, ci, h, w)).astype(np.float32)
    weight = random.standard_normal((co, ci // group, kernel, kernel)).astype(np.float32)
    bias = random.standard_normal(co).astype(np.float32)
    how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], "c", group=group, **how)]
    model = model_of(nodes, x, w=weight, b=bias)
    x_, w_, b_ = (rounded(array, name) for array in (x, weight, bias))
    exact = exact_convolution(x_, w_, stride, pad, group) + b_[:, None, None].astype(np.float64)
    sizes = exact_convolution(np.abs(x_), np.abs(w_), stride, pad, group) + 5
    found, used = run(model, name, x, tmp_path)
    near(found, exact, sizes, name)
    if name == "bfloat16" and this_processor().pairs_per_cycle and group == 1 and ci > 4:
        assert "conv_16" in used
        found, _ = run(model, name, x, tmp_path, (*NATIVE, "-mno-avx512bf16"))
        near(found, exact, sizes, name)


@pytest.mark.parametrize(
    ("shape", "name"), crossed(PRODUCTS, DTYPES), ids=lambda value: str(value).replace(", ", "x")
)
def test_products_with_residual(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    rows, depth, columns = shape
    random = np.random.default_rng(shape)
    x = random.standard_normal((rows, depth)).astype(np.float32)
    weight, second = (
        random.standard_normal(size).astype(np.float32) / 8
        for size in ((depth, columns), (columns, columns))
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["b"], "second"),
        helper.make_node("Add", ["b", "r"], ["y"], "sum"),
    ]
    model = model_of(nodes, x, w=weight, v=second)
    found, used = run(model, name, x, tmp_path)
    # What is read twice is read in 16 bits: nothing of it is a kernel of its own.
    assert len([kind for kind in used if not kind.startswith("matmul")]) <= 1

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a.astype(np.float64) @ rounded(b, name).astype(np.float64)

    a = product(rounded(x, name), weight)
    r = np.maximum(rounded(a.astype(np.float32), name), 0)
    # The relu's roundings may fall to either side: the second product's terms differ by as much.
    slack = product(np.abs(r) * 2 * PRECISION[name], np.abs(second)) + 4 * PRECISION[name] * r
    exact = product(r, second)
    allowed = slack + 3 * PRECISION[name] * (np.abs(exact) + np.abs(exact + r) + r) + 1e-5
    assert (np.abs(found - (exact + r)) <= allowed).all()


@pytest.mark.parametrize("name", DTYPES)
def test_batches_of_computed_operands(name: str) -> None:
    m = Maker(machine())
    random = np.random.default_rng(6)
    x, w = m.input((3, 5, 7)), m.input((3, 7, 6))
    for key, shape in (("in0", (3, 5, 7)), ("in1", (3, 7, 6))):
        m.inputs[key] = rounded(random.standard_normal(shape).astype(np.float32), name)
    short = [m.kernel([(CastOp, [value], {"to": name})]) for value in (x, w)]
    m.finish(m.kernel([(MatMulOp, short, {})]))
    a, b = (m.inputs[key].astype(np.float64) for key in ("in0", "in1"))
    np.testing.assert_allclose(m.run(NATIVE)["out0"], a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", DTYPES)
def test_any_layout_will_do(name: str) -> None:
    m = Maker(PLAIN)
    x, w, b = m.input((1, 3, 6, 7)), m.input((5, 3, 2, 2)), m.input((5,))
    short = [m.kernel([(CastOp, [value], {"to": name})]) for value in (x, w, b)]
    alone = m.kernel([(ConvOp, [x, short[1]], {})])
    both = m.kernel([(ConvOp, short, {"strides": (1, 2)}), (CastOp, [0], {"to": name})])
    largest = m.kernel([(MaxPoolOp, [short[0]], {"kernel": (2, 2)})])
    last = [m.kernel([(CastOp, [value], {"to": "float32"})]) for value in (both, largest)]
    m.finish(alone, *last)
    found, expected = m.run(FLAGS), m.expected()
    np.testing.assert_allclose(found["out0"], expected["out0"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["out1"], expected["out1"], rtol=2 * PRECISION[name])
    assert np.array_equal(found["out2"], expected["out2"])
    assert len(np.unique(expected["out2"])) > 10


@pytest.mark.parametrize("name", DTYPES)
def test_tables_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    table = (random.standard_normal((50, 24)) * 3).astype(np.float32)
    x = random.integers(0, 50, (3, 7)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], "index", to=TensorProto.INT64),
        helper.make_node("Gather", ["t", "i"], ["g"], "table"),
        helper.make_node("Neg", ["g"], ["y"], "neg"),
    ]
    found, _ = run(model_of(nodes, x, t=table), name, x, tmp_path)
    assert np.array_equal(found, -rounded(table, name)[x.astype(int)])


def test_weights_take_half_the_bytes(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 256)).astype(np.float32)
    weight = np.random.default_rng(2).standard_normal((256, 512)).astype(np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], x, w=weight)
    onnx.save(model, tmp_path / "m.onnx")
    sizes = {}
    for name in ("float32", *DTYPES):
        made = tilewright.compile(tmp_path / "m.onnx", numbers=name)
        sizes[name] = made.manifest.peak_memory_bytes - made.manifest.activation_bytes
    assert sizes["float16"] == sizes["bfloat16"] == sizes["float32"] // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    ("cpu", "compiler"),
    [("avx512", "gcc"), ("avx2", "gcc"), ("avx2", "clang"), ("sse2", "gcc"), ("portable", "clang")],
)
def test_other_processors(
    name: str, cpu: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing(compiler):
        pytest.skip(reason)
    _, ci, h, w, co, *_ = CONVOLUTIONS[1]
    random = np.random.default_rng(3)
    x = random.standard_normal((1, ci, h, w)).astype(np.float32)
    weight = random.standard_normal((co, ci, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "c"),
        helper.make_node("MaxPool", ["a"], ["y"], "p", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    model = model_of(nodes, x, w=weight)
    monkeypatch.setattr(building, "find_compiler", lambda: (compiler,))
    try:
        found, _ = run(
            model, name, x, tmp_path, (*FLAGS, *PROCESSORS[cpu].flags, "-Werror"), cpu=cpu
        )
    except tilewright.TilewrightError as error:
        assert "cpu-foreign" in str(error)
        pytest.skip("this machine does not run it")
    exact = exact_convolution(rounded(x, name), rounded(weight, name), 1, 0, 1)
    sizes = exact_convolution(np.abs(x), np.abs(weight), 1, 0, 1)

    def pooled(array: np.ndarray) -> np.ndarray:
        rows, columns = (2 * (extent // 2) for extent in array.shape[2:])
        cut = array[:, :, :rows, :columns]
        return cut.reshape(1, co, rows // 2, 2, columns // 2, 2).max((3, 5))

    near(found, pooled(exact), pooled(sizes), name)


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", CONVOLUTIONS[:2] + CONVOLUTIONS[-2:], ids=str)
def test_fixed_point_reads_its_weights(shape: tuple[int, ...], tmp_path: Path) -> None:
    n, ci, h, w, co, kernel, stride, pad, group = shape
    random = np.random.default_rng(shape)
    x = random.standard_normal((n, ci, h, w)).astype(np.float32)
    weight = random.standard_normal((co, ci // group, kernel, kernel)).astype(np.float32)
    bias = random.standard_normal(co).astype(np.float32)
    how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], "c", group=group, **how)]
    onnx.save(model_of(nodes, x, w=weight, b=bias), tmp_path / "m.onnx")
    made = tilewright.compile(tmp_path / "m.onnx", numbers="fixed16", calibration=[{"x": x}])
    used = [record.schedule.partition(" ")[0] for record in made.manifest.kernels]
    assert "general" not in used and any("conv" in name for name in used)
    found, reference = made.run({"x": x})["y"], made.reference({"x": x})["y"]
    exact = exact_convolution(x, weight, stride, pad, group) + bias[:, None, None]
    terms = exact_convolution(np.abs(x), np.abs(weight), stride, pad, group) + 5
    assert (np.abs(found - reference) <= 2.0**-20 * terms).all()
    # Half a step of the image and of the weights, each of 2**-15 of at most eight.
    assert (np.abs(found - exact) <= terms * 2.0**-11).all()
    assert not np.array_equal(found, exact.astype(np.float32))


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["float16", pytest.param("bfloat16", marks=SLOW), pytest.param("fixed16", marks=SLOW)]
)
def test_winograds_method_widens_weights_on_their_way(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x = random.standard_normal((1, 32, 30, 30)).astype(np.float32)
    weight = random.standard_normal((48, 32, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "c", pads=[1] * 4)]
    path = tmp_path / "short.onnx"
    onnx.save(model_of(nodes, x, w=weight), path)
    # Without products of pairs, which read images of 16 bits, too.
    described = machine(replace(this_processor(), pairs_per_cycle=0.0))
    samples = [{"x": x}] if name == "fixed16" else None
    made, direct = (
        tilewright.compile(
            *(path,), machine=described, numbers=name, calibration=samples, exact_convolution=exact
        )
        for exact in (False, True)
    )
    kinds = [[r.schedule.partition(" ")[0] for r in one.manifest.kernels] for one in (made, direct)]
    assert "winograd_6_plain" in kinds[0] and not any("winograd" in kind for kind in kinds[1])
    bytes_of = [
        (one.directory / "program" / "weights.bin").stat().st_size for one in (made, direct)
    ]
    assert bytes_of[0] <= bytes_of[1], "weights stay what they are"
    found, expected = made.run({"x": x})["y"], direct.run({"x": x})["y"]
    # Results of 16 bits may round to either side.
    unit = PRECISION.get(name, 2.0**-15) * 2 + 2e-5
    np.testing.assert_allclose(found, expected, rtol=0, atol=unit * float(np.abs(expected).max()))
    if name in DTYPES:
        exact = exact_convolution(rounded(x, name), rounded(weight, name), 1, 1, 1)
        near(found, exact, np.full_like(exact, 16 * np.abs(exact).max()), name)
