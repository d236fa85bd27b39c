"""Text in HIVM: what it computes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.ascend.hivm_interpreter import execute
from tests.targets.ascend.oracle import (
    OPTIONS,
    bishengir_opt,
    missing_functions,
    needs_oracle,
    planned_bytes,
)
from tests.targets.generic.kernel_cases import Array, Case, KernelBuilder

import tilewright
from tilewright.errors import TilewrightError
from tilewright.ir import SSAValue, f16
from tilewright.planning import Planner
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.hivm.emit import function_text
from tilewright.targets.ascend.hivm.machine import UB, machine_910b
from tilewright.targets.ascend.machine import ASCEND_910B1
from tilewright.tile.dialect import BufferOp, ProgramOp
from tilewright.tile.lower import tile

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"
MACHINE = machine_910b()


class Halves(KernelBuilder):
    """Kernels on halves, computed in float32 and rounded once."""

    def __init__(self, seed: int, images: str = "") -> None:
        super().__init__(seed, fixed=False, element=f16)
        self.images = images

    def stored(self, value: SSAValue) -> Case:
        return self.finish(self.op("cast", value, to="float16"))


def product(seed: int) -> Case:
    build = Halves(seed)
    m, k, n = (int(v) for v in build.random.integers(1, (300, 900, 300)))
    turned = bool(seed % 2)
    operands = [build.operand((m, k)), build.operand((n, k) if turned else (k, n))]
    operands += [build.operand((n,), bits=32)] if seed % 3 else []
    y = build.op("matmul", *operands, transpose_b=turned)
    return build.stored(build.op("relu", y) if seed % 4 < 2 else y)


def convolution(seed: int) -> Case:
    """Any channels, windows, strides, dilations and pads; some with tiles along every dim."""
    build = Halves(seed, "NHWC")
    pick = build.random
    ci, co = (int(n) for n in pick.integers(1, (40, 60)))
    kernel, strides, dilations = (
        tuple(int(n) for n in pick.integers(1, most, 2)) for most in (5, 4, 3)
    )
    if seed % 4 == 3:
        kernel, strides, dilations, ci, co = (1, 1), (1, 1), (1, 1), 600, 300
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    pads = tuple(int(pick.integers(0, span)) for span in (*spans, *spans))
    image = [int(pick.integers(max(span, 8), 40)) for span in spans]
    operands = [build.operand((int(pick.integers(1, 3)), ci, *image), layout="NHWC")]
    operands += [build.operand((co, ci, *kernel), layout="HWIO")]
    operands += [build.operand((co,), bits=32)] if seed % 3 else []
    y = build.op("conv", *operands, strides=strides, pads=pads, dilations=dilations)
    return build.stored(build.op("relu", y) if seed % 2 else y)


def convolution_of_parts() -> Case:
    """Sums of more rows than an image's tile has, and rows that neither divides."""
    build = Halves(1, "NHWC")
    x = build.operand((1, 128, 27, 28), layout="NHWC")
    operands = [x, build.operand((256, 128, 3, 3), layout="HWIO"), build.operand((256,), bits=32)]
    y = build.op("conv", *operands, strides=(2, 2), pads=(1, 1, 1, 1))
    case = build.stored(build.op("relu", y))
    assert len(Planner(MACHINE).plan(case.kernel).schedule.levels) == 2
    return case


def depthwise(seed: int) -> Case:
    build = Halves(seed, "NHWC")
    pick = build.random
    channels = int(pick.integers(2, 80))
    kernel, strides, dilations = (
        tuple(int(n) for n in pick.integers(1, most, 2)) for most in (5, 3, 3)
    )
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    pads = tuple(int(pick.integers(0, span)) for span in (*spans, *spans))
    image = [int(pick.integers(max(span, 5), 40)) for span in spans]
    operands = [build.operand((2, channels, *image), layout="NHWC")]
    operands += [build.operand((channels, 1, *kernel), layout="HWIO")]
    operands += [build.operand((channels,), bits=32)] if seed % 2 else []
    more: dict[str, Any] = {"strides": strides, "pads": pads, "dilations": dilations}
    y = build.op("conv", *operands, **more, group=channels)
    after: list[tuple[str, dict[str, Any]]] = [
        ("clip", {"minimum": 0.0, "maximum": 1.5}),
        ("relu", {}),
        ("", {}),
    ]
    name, values = after[seed % 3]
    return build.stored(build.op(name, y, **values) if name else y)


def pool(seed: int) -> Case:
    """Maxima and means, with padding that counts, counts in part, or does not."""
    build = Halves(seed, "NHWC")
    pick = build.random
    kernel = tuple(int(n) for n in pick.integers(1, 5, 2))
    more: dict[str, Any] = {"strides": tuple(int(n) for n in pick.integers(1, 4, 2))}
    spans = kernel
    if seed % 2 == 0:
        more["dilations"] = tuple(int(n) for n in pick.integers(1, 3, 2))
        spans = tuple((n - 1) * d + 1 for n, d in zip(kernel, more["dilations"], strict=True))
    pads = tuple(int(pick.integers(0, span)) for span in (*kernel, *kernel))
    more["pads"] = (0, 0, 0, 0) if seed % 8 == 1 else pads
    if seed % 2 and seed % 8 != 1:
        more["counted"] = {3: pads, 5: (0, 0, 0, 0), 7: (*pads[:2], 0, 0)}[seed % 8]
    image = [int(pick.integers(max(span, 5), 50)) for span in spans]
    shape = (int(pick.integers(1, 3)), int(pick.integers(1, 70)), *image)
    name = "average_pool" if seed % 2 else "max_pool"
    x = build.operand(shape, layout="NHWC")
    return build.stored(build.op(name, x, kernel=kernel, **more))


def converted(seed: int) -> Case:
    build = Halves(seed, "NHWC" if seed % 2 else "")
    shape = tuple(build.random.integers(1, 50, 4).tolist())
    x = build.operand(shape, layout="" if seed % 2 else "NHWC")
    return build.finish(build.op("convert_layout", x))


def batch(seed: int) -> Case:
    build = Halves(seed)
    m, k, n = (int(v) for v in build.random.integers(1, 100, 3))
    return build.stored(
        build.op("matmul", build.operand((2, 3, m, k)), build.operand((2, 3, k, n)))
    )


def points(seed: int) -> Case:
    build = Halves(seed)
    shape = tuple(build.random.integers(1, (5, 70, 300)).tolist())
    name = ("add", "sub", "mul", "max", "div")[seed % 5]
    other = shape[seed % 3 :] if seed % 2 else (shape[0], 1, shape[2])
    y = build.op(name, build.operand(shape), build.operand(other))
    return build.stored(build.op("relu", y) if seed % 2 else y)


def function(name: str, **attributes: Any) -> Case:
    build = Halves(3)
    return build.stored(build.op(name, build.operand((7, 1234)), **attributes))


def rows(seed: int) -> Case:
    build = Halves(seed)
    width = int(build.random.integers(2, 700))
    x = build.operand((*build.random.integers(1, 20, seed % 3).tolist(), width))
    if seed % 2:
        return build.finish(build.op("softmax", x, axis=-1))
    others = [build.operand((width,)) for _ in range(seed % 3)]
    return build.stored(build.op("layer_norm", x, *others, centred=seed % 4 < 2))


def turned(seed: int) -> Case:
    build = Halves(seed)
    shape = tuple(build.random.integers(1, 40, 4).tolist())
    order = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 1, 3, 2), (3, 0, 1, 2))[seed % 4]
    return build.stored(build.op("transpose", build.operand(shape), permutation=list(order)))


CASES = {
    **{f"product {seed}": (lambda s=seed: product(s)) for seed in range(8)},
    **{f"convolution {seed}": (lambda s=seed: convolution(s)) for seed in range(7)},
    "convolution of parts": convolution_of_parts,
    **{f"depthwise {seed}": (lambda s=seed: depthwise(s)) for seed in range(4)},
    **{f"pool {seed}": (lambda s=seed: pool(s)) for seed in range(8)},
    **{f"converted {seed}": (lambda s=seed: converted(s)) for seed in range(2)},
    **{f"batch {seed}": (lambda s=seed: batch(s)) for seed in range(2)},
    **{f"points {seed}": (lambda s=seed: points(s)) for seed in range(10)},
    **{
        name: (lambda n=name: function(n))
        for name in ("neg", "abs", "exp", "erf", "tanh", "sigmoid", "silu", "gelu")
    },
    "clip": lambda: function("clip", minimum=-0.5, maximum=1.25),
    "clip above": lambda: function("clip", maximum=0.75),
    **{f"rows {seed}": (lambda s=seed: rows(s)) for seed in range(8)},
    **{f"turned {seed}": (lambda s=seed: turned(s)) for seed in range(4)},
}


def packed(case: Case) -> tuple[list[Array], Array]:
    """The arguments as they lie in main memory, the result last; and the result by its axes."""
    kernel = case.kernel
    layouts = {one.name: Layout.parse(one.layout, len(one.shape)) for one in kernel.operands}
    values = [layouts[name].pack(array) for name, array in case.operands.items()]
    layout = layouts[kernel.output.name]
    result = layout.pack(np.full(case.expected.shape, np.nan, np.float16))
    axes = [factor.axis for factor in layout.factors]
    return [*values, result], result.transpose(np.argsort(axes))


def program_of(case: Case) -> ProgramOp:
    return tile(case.kernel, Planner(MACHINE).plan(case.kernel).schedule, MACHINE)


def text_of(case: Case) -> str:
    return module(program_of(case))


def module(program: ProgramOp) -> str:
    return f"module {{\n{function_text(program, 'k')}\n}}\n"


def small_product() -> Case:
    """A product with a bias and relu, in one tile."""
    build = Halves(0)
    operands = [build.operand((32, 64)), build.operand((64, 48)), build.operand((48,), bits=32)]
    return build.stored(build.op("relu", build.op("matmul", *operands, transpose_b=False)))


def test_text(request: pytest.FixtureRequest) -> None:
    """``pytest --bless`` rewrites the file."""
    golden = Path(__file__).parent / "goldens" / "product.mlir"
    text = text_of(small_product())
    if request.config.getoption("--bless"):
        golden.write_text(text)
    assert text == golden.read_text()


SLOW = {
    *(f"convolution {seed}" for seed in (0, 2, 4, 6)),
    *(f"depthwise {seed}" for seed in (0, 2, 3)),
    *(f"pool {seed}" for seed in (1, 2, 4, 5, 6)),
}
"""Left to `make test-all`: others are of the same kinds."""


@pytest.mark.few(13)
@pytest.mark.parametrize("name", but_fast(CASES, [name for name in CASES if name not in SLOW]))
def test_the_text_computes_what_the_graph_means(name: str) -> None:
    """Sums of products in another order, functions of another library: a few units of float32, and
    one rounding to halves."""
    case = CASES[name]()
    arguments, result = packed(case)
    execute(text_of(case), arguments)
    wanted = case.expected.astype(np.float64)
    assert np.isfinite(result.astype(np.float64)).all()
    room = 2.0**-10 * np.abs(wanted) + 2.0**-20 * np.abs(wanted).max() + 2.0**-24
    assert (np.abs(result - wanted) <= room).all()


@needs_oracle
@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_the_vendors_tool_accepts_plans_and_synchronises(name: str) -> None:
    text = text_of(CASES[name]())
    planned = bishengir_opt(text, OPTIONS)
    assert planned.count("hivm.hir.pointer_cast") == text.count("memref.alloc()")
    assert "hivm.hir.set_flag" in planned
    assert not missing_functions(text)


@needs_oracle
@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_the_vendors_tool_needs_the_bytes_that_were_planned(name: str) -> None:
    """No fewer, but for what each slot is rounded up to, and for pixels that no tap reads; in UB
    more, where a kernel has values between its operations, and in L1, where images are padded."""
    program = program_of(CASES[name]())
    ends: dict[str, int] = {}
    rounded: dict[str, int] = {}
    for op in program.walk():
        if isinstance(op, BufferOp):
            assert op.address is not None
            assert op.bytes is not None
            memory, end = op.memory, op.address.value.data + op.bytes.value.data * op.places
            ends[memory] = max(ends.get(memory, 0), end)
            granules = op.places * MACHINE.memory(memory).granule
            rounded[memory] = rounded.get(memory, 0) + granules
    found = planned_bytes(bishengir_opt(module(program), OPTIONS))
    assert found.keys() == ends.keys()
    for memory, end in ends.items():
        padded = name.startswith("convolution") and memory == "cbuf"
        assert found[memory] > (0 if padded else end - rounded[memory])
        assert found[memory] <= (UB if memory == "ub" else ASCEND_910B1.l1 if padded else end)


@needs_oracle
@pytest.mark.oracle
def test_the_vendors_tool_finds_what_does_not_fit() -> None:
    """A check of the check: a buffer as large as UB beside others is an error."""
    text = text_of(CASES["exp"]())
    wide = f"memref<{UB // 2}xf16, #hivm.address_space<ub>>"
    more = (
        f"%more = memref.alloc() : {wide}\nhivm.hir.vexp ins(%more : {wide}) outs(%more : {wide})"
    )
    text = text.replace("      hivm.hir.store", f"{more}\nhivm.hir.store", 1)
    with pytest.raises(AssertionError, match="ub overflow"):
        bishengir_opt(text, OPTIONS)


def test_nothing_here_runs_a_package(tmp_path: Path) -> None:
    executable = tilewright.compile(LENET, "ascend910b", directory=tmp_path / "package")
    assert (tmp_path / "package" / "program" / "kernels.mlir").is_file()
    with pytest.raises(TilewrightError, match=r"target-text.*is not run here"):
        executable.run({"image": np.zeros((1, 1, 28, 28), np.float32)})
