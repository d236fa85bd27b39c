"""Single instructions, written as assembly, against the meanings in numerics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.codegen.words import assemble
from tilewright.numerics import fixed, pointwise, reference, tables
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.program import decode
from tilewright.targets.generic.simulate import Simulator

Array = NDArray[Any]


class Chip:
    """The memories of the simulated machine, filled by tests; runs a source text."""

    def __init__(self, instructions: InstructionSet, main: int = 65536) -> None:
        self.instructions = instructions
        self.main = np.zeros(main, np.uint8)
        self.local: dict[str, Array] = {}

    def run(self, text: str) -> None:
        program = decode(self.instructions, assemble(self.instructions, text))
        simulator = Simulator(program, [(0, self.main)])
        for key, data in self.local.items():
            memory, _, address = key.partition(":")
            raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            start = int(address or 0)
            simulator.memories.local[memory][start : start + raw.size] = raw
        simulator.run()
        self.memories = simulator.memories

    def read(self, memory: str, address: int, shape: tuple[int, ...], dtype: Any) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.memories.local[memory][address : address + size].view(dtype).reshape(shape)


@pytest.fixture
def chip(instructions: InstructionSet) -> Chip:
    return Chip(instructions)


def drawn(seed: int, *shape: int, bits: int = 16) -> Array:
    limit = 1 << (bits - 1)
    return np.random.default_rng(seed).integers(-limit, limit, shape).astype(f"int{bits}")


def nhwc(image: Array) -> Array:
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1))


def test_a_load_gathers_a_strided_box_and_a_second_run(chip: Chip) -> None:
    source = np.arange(4000, dtype=np.int16)
    chip.main[:8000] = source.view(np.uint8)
    chip.run(
        "load_sb size0=3, size1=5, size2=2, source.address=100, source.stride0=400, "
        "source.stride1=20, source.stride2=2, target.address=64, target.stride0=20, "
        "target.stride1=4, target.stride2=2, extra.bytes=6, extra.source=7000, extra.target=8"
    )
    want = np.array(
        [[[50 + 200 * i + 10 * j + k for k in range(2)] for j in range(5)] for i in range(3)]
    )
    np.testing.assert_array_equal(chip.read("sb", 64, (3, 5, 2), np.int16), want)
    np.testing.assert_array_equal(chip.read("sb", 8, (3,), np.int16), [3500, 3501, 3502])


def test_a_store_scatters(chip: Chip) -> None:
    chip.local["nbout"] = np.arange(1, 13, dtype=np.int16)
    chip.run(
        "store_nbout size0=3, size1=2, source.stride0=8, source.stride1=4, "
        "target.address=1000, target.stride0=100, target.stride1=2"
    )
    stored = chip.main.view(np.int16)
    for row in range(3):
        np.testing.assert_array_equal(
            stored[500 + 50 * row : 502 + 50 * row], [1 + 4 * row, 3 + 4 * row]
        )


CONV = (
    "conv co=6, oh=5, ow=4, ci=3, kh=3, kw=2, stride.w=2, row=-1, rows=5, column=-1, columns=7, "
    "input.h=42, input.w=6, input.c=2, weight.co=36, weight.kh=12, weight.kw=6, weight.ci=2, "
    "bias=1, bias.address=0x4000, bias.c=4, "
)


def conv_data(chip: Chip) -> Array:
    """Fills the buffers as CONV expects and returns the result."""
    x, w = drawn(1, 1, 3, 5, 7), drawn(2, 6, 3, 3, 2)
    bias = drawn(3, 6, bits=32)
    chip.local["nbin"] = nhwc(x)
    chip.local["sb"] = w.transpose(0, 2, 3, 1)
    chip.local["sb:16384"] = bias
    return fixed.conv2d(x, w, bias, (1, 2), (1, 1, 1, 0))


def test_conv_accumulates_modulo_two_to_the_32(chip: Chip) -> None:
    want = conv_data(chip)
    assert want.shape == (1, 6, 5, 4)
    chip.run(CONV + "output.h=96, output.w=24, output.c=4, output.wide=1")
    np.testing.assert_array_equal(chip.read("nbout", 0, (1, 5, 4, 6), np.int32), nhwc(want))


def test_conv_in_two_parts_with_every_step(chip: Chip) -> None:
    want = conv_data(chip)
    residual = drawn(4, 1, 6, 5, 4)
    entries = tables.table("tanh", 11, 14)
    chip.local["nbout:4096"] = nhwc(residual)
    chip.local["tables:1024"] = entries
    place = "output.h=96, output.w=24, output.c=4"
    steps = (
        "then1=add, then1.x=12, then1.y=9, residual.address=4096, residual.h=48, residual.w=12, "
        "residual.c=2, then2=leaky_relu, then2.x=1638, then3=requantise, then3.x=12, then3.y=-5, "
        "then4=tanh, then4.table=1024"
    )
    text = CONV.replace("ci=3", "ci=2") + f"{place}, last=0\n"
    second = CONV.replace("ci=3", "ci=1").replace("input.h", "input.address=4, input.h")
    text += (
        second.replace("weight.co", "weight.address=4, weight.co") + f"{place}, first=0, {steps}"
    )
    chip.run(text)
    total = pointwise.FIXED["add"]([want, residual], (12, 9), {})
    total = pointwise.FIXED["leaky_relu"]([total], (12,), {"alpha": 1638 / 2**14})
    result = tables.interpolate(entries, fixed.requantise(total, 12, -5))
    # A result takes the low half of its accumulator's place.
    found = chip.read("nbout", 0, (1, 5, 4, 6, 2), np.int16)[..., 0]
    np.testing.assert_array_equal(found, nhwc(result))
    assert len(np.unique(found)) > 20


def test_depthwise(chip: Chip) -> None:
    x, w = drawn(5, 1, 9, 6, 6), drawn(6, 9, 1, 3, 3)
    chip.local["nbin"], chip.local["sb"] = nhwc(x), w
    chip.run(
        "depthwise_conv c=9, oh=3, ow=3, kh=3, kw=3, stride.h=2, stride.w=2, row=-1, column=-1, "
        "rows=6, columns=6, input.h=108, input.w=18, input.c=2, weight.c=18, weight.kh=6, "
        "weight.kw=2, output.h=108, output.w=36, output.c=4, output.wide=1"
    )
    want = fixed.conv2d(x, w, None, (2, 2), (1, 1, 1, 1), group=9)
    np.testing.assert_array_equal(chip.read("nbout", 0, (1, 3, 3, 9), np.int32), nhwc(want))


@pytest.mark.parametrize("counted", [(0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 1, 0)])
def test_average_pool_counts_what_it_is_told(counted: tuple[int, ...], chip: Chip) -> None:
    x = drawn(7, 1, 5, 6, 6)
    chip.local["nbin"] = nhwc(x)
    top, left, bottom, right = counted
    chip.run(
        "pool function=average_pool, c=5, oh=3, ow=3, kh=3, kw=3, stride.h=2, stride.w=2, row=-1, "
        "column=-1, rows=6, columns=6, window.h=3, window.w=3, window.row=-1, window.column=-1, "
        f"count.top={-top}, count.bottom={6 + bottom}, count.left={-left}, count.right={6 + right},"
        "input.h=60, input.w=10, input.c=2, output.h=30, output.w=10, output.c=2"
    )
    want = fixed.average_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), counted)
    np.testing.assert_array_equal(chip.read("nbout", 0, (1, 3, 3, 5), np.int16), nhwc(want))


def test_max_pool_leaves_padding_out(chip: Chip) -> None:
    x = np.minimum(drawn(8, 1, 5, 6, 6), -5).astype(np.int16)
    chip.local["nbin"] = nhwc(x)
    chip.run(
        "pool function=max_pool, c=5, oh=3, ow=3, kh=3, kw=3, stride.h=2, stride.w=2, row=-1, "
        "column=-1, rows=6, columns=6, input.h=60, input.w=10, input.c=2, output.h=30, "
        "output.w=10, output.c=2"
    )
    want = reference.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1))
    np.testing.assert_array_equal(chip.read("nbout", 0, (1, 3, 3, 5), np.int16), nhwc(want))


@pytest.mark.parametrize(
    ("function", "fields", "attributes"),
    [
        ("add", "function.x=7, function.y=10", {}),
        ("sub", "function.x=11, function.y=10", {}),
        ("mul", "", {}),
        ("max", "", {}),
        ("min", "", {}),
        ("relu", "", {}),
        ("neg", "", {}),
        ("abs", "", {}),
        ("clip", "function.x=-300, function.y=4000", {"minimum": -300 / 128, "maximum": 31.25}),
        ("leaky_relu", "function.x=1638", {"alpha": 1638 / 2**14}),
    ],
)
def test_vector_functions(
    function: str, fields: str, attributes: dict[str, float], chip: Chip
) -> None:
    a, b = drawn(9, 3, 20), drawn(10, 20)
    a[0, :3] = -32768, 32767, 0
    chip.local["nbin"], chip.local["nbin:2048"] = a, b
    binary = function in ("add", "sub", "mul", "max", "min")
    points = {"add": (7, 10), "sub": (11, 10)}.get(function, (7, 7))
    arrays = [a, b] if binary else [a]
    want = pointwise.evaluate(
        function, arrays, fixed=True, fractions=points[: len(arrays)], attributes=attributes
    )
    wide = int(want.dtype == np.int32)
    step = 2 + 2 * wide
    chip.run(
        f"vector function={function}, {fields + ', ' if fields else ''}d0=3, d1=20, input.d0=40, "
        "input.d1=2, other.address=2048, other.d1=2, "
        f"output.d0={20 * step}, output.d1={step}, output.wide={wide}"
    )
    np.testing.assert_array_equal(chip.read("nbout", 0, (3, 20), want.dtype), want)


@pytest.mark.parametrize("name", sorted(tables.FUNCTIONS))
def test_table_functions(name: str, chip: Chip) -> None:
    x = np.arange(-32768, 32768, 37).astype(np.int16)[:1700]
    parameters = {"hard_sigmoid": (0.2, 0.5), "elu": (1.0,)}.get(name, ())
    entries = tables.table(name, 12, 10, parameters)
    chip.local["nbin"], chip.local["tables"] = x, entries
    chip.run(f"vector function={name}, d0={x.size}, input.d0=2, output.d0=2")
    found = chip.read("nbout", 0, x.shape, np.int16)
    np.testing.assert_array_equal(found, tables.interpolate(entries, x))


@pytest.mark.parametrize(("beta", "size"), [(0.75, 5), (0.5, 3), (2.0, 1)])
def test_lrn(beta: float, size: int, chip: Chip) -> None:
    x = drawn(11, 1, 12, 3, 4)
    mantissas, factors, shifts = fixed.lrn_tables(beta)
    chip.local["nbin"] = nhwc(x)
    chip.local["tables:64"] = np.concatenate([mantissas, factors, shifts]).astype(np.uint16)
    alpha, bias = 0.02, 1.5
    chip.run(
        f"lrn c=12, h=3, w=4, j={size}, alpha={round(alpha / size * 2**30)}, "
        f"bias={round(bias * 2**20)}, point.in=9, point.out=11, table=64, "
        "input.h=96, input.w=24, input.c=2, output.h=96, output.w=24, output.c=2"
    )
    want = fixed.lrn(x, size, alpha, beta, bias, 9, 11)
    np.testing.assert_array_equal(chip.read("nbout", 0, (1, 3, 4, 12), np.int16), nhwc(want))


def test_softmax_along_a_strided_axis(chip: Chip) -> None:
    x = (drawn(12, 10, 7) // 8).astype(np.int16)
    chip.local["nbin"] = x
    chip.run(
        "softmax d0=7, axis=10, point.in=9, point.out=14, input.d0=2, input.axis=14, "
        "output.d0=2, output.axis=14"
    )
    want = fixed.softmax(x, 0, 9, 14)
    np.testing.assert_array_equal(chip.read("nbout", 0, (10, 7), np.int16), want)
    assert abs(want.astype(float).sum(axis=0) / 2**14 - 1).max() < 0.001
