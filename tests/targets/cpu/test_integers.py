"""Quantised kernels in C give the interpreter's integers, bit for bit, whatever the vectors."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.frontends.onnx.quantised_models import Quantised
from tests.frontends.onnx.test_onnx_quantised import weights

import tilewright
from tilewright.codegen.c.compiler import find_compiler
from tilewright.frontends.onnx import import_onnx
from tilewright.targets.cpu.machine import Processor, machine, this_processor

LANES = [lanes for lanes in (4, 8, 16) if lanes <= this_processor().lanes]
HEADERS = Path(tilewright.__file__).parent / "targets" / "cpu"


def processor(lanes: int, word: int = 2) -> Processor:
    return Processor(lanes, 32 if lanes == 16 else 15, 1.0, word_bytes=word)


def images(seed: int, dtype: type) -> tuple[Quantised, list[str]]:
    """Convolutions of all kinds, pools, sums, a table: every primitive for images."""
    q = Quantised(seed)
    zero = 3 if dtype is np.uint8 else -20

    def through(value: str, scale: float = 0.03, origin: int = zero) -> str:
        return q.through(value, scale, origin, dtype)

    x = through(q.input(1, 3, 13, 17), 0.02, 7)
    a = q.node("Conv", x, weights(q, np.int8, (22, 3, 3, 3)), pads=[1] * 4, strides=[2, 2])
    a = through(q.node("Relu", a))
    b = through(q.node("Conv", a, weights(q, np.int8, (22, 1, 3, 3)), group=22, pads=[1] * 4))
    c = through(q.node("Conv", b, weights(q, np.int8, (24, 22, 1, 1))), 0.1)
    d = through(q.node("Conv", a, weights(q, np.int8, (24, 22, 3, 3)), pads=[1] * 4), 0.1)
    e = through(q.node("Relu", q.node("Add", c, d)), 0.12)
    f = through(q.node("MaxPool", e, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0.12)
    g = through(q.node("Mul", f, q.node("HardSigmoid", f)), 0.1)
    h = through(q.node("Conv", g, weights(q, np.int8, (32, 12, 3, 3)), group=2), 0.2)
    means = q.quantise(q.node("GlobalAveragePool", h), 0.05, zero, dtype)
    return q, [means, q.quantise(e, 0.2, zero, dtype), q.quantise(g, 0.1, zero, dtype)]


def matrices(seed: int, dtype: type) -> tuple[Quantised, list[str]]:
    """Products whose rows do not fill words or vectors."""
    q = Quantised(seed)
    x = q.through(q.input(2, 9, 35), 0.02, 7, dtype)
    y = q.through(q.node("MatMul", x, weights(q, np.int8, (35, 70), 1)), 0.02, -3 % 128, dtype)
    z = q.node("MatMul", y, weights(q, np.int8, (70, 21), 1))
    scores = q.node("MatMul", y, q.node("Transpose", y, perm=[0, 2, 1]))
    return q, [q.quantise(z, 0.05, 9, dtype), q.quantise(scores, 3.0, 9, dtype)]


def groups(seed: int, dtype: type) -> tuple[Quantised, list[str]]:
    """Groups that fill no vectors, and no words; words that a block of lanes ends within."""
    q = Quantised(seed)

    def layer(value: str, *shape: int, scale: float = 0.05, **attributes: object) -> str:
        made = q.node("Conv", value, weights(q, np.int8, shape), **attributes)
        return q.through(made, scale, 3, dtype)

    x = q.through(q.input(1, 32, 9, 11), 0.02, 7, dtype)
    a = layer(x, 48, 4, 3, 3, group=8, pads=[1] * 4, strides=[2, 1])
    b = layer(a, 24, 6, 1, 1, group=8, scale=0.1)
    c = layer(b, 40, 3, 2, 3, group=8, pads=[0, 1, 1, 1], scale=0.1)
    d = layer(c, 80, 1, 1, 1, group=40, scale=0.1)
    e = layer(d, 72, 20, 1, 3, group=4, scale=0.3)
    return q, [q.quantise(value, 0.1, 3, dtype) for value in (b, c, e)]


def windows(seed: int, dtype: type) -> tuple[Quantised, list[str]]:
    """Windows that meet the border in many ways, of few channels and of many; single points."""
    q = Quantised(seed)

    def layer(value: str, *shape: int, scale: float = 0.05, **attributes: object) -> str:
        made = q.node("Conv", value, weights(q, np.int8, shape), **attributes)
        return q.through(made, scale, 3, dtype)

    x = q.through(q.input(2, 2, 23, 29), 0.02, 7, dtype)
    a = layer(x, 19, 2, 7, 5, pads=[3, 1, 2, 2], strides=[2, 1])
    b = layer(a, 21, 19, 3, 3, pads=[2, 2, 2, 2], dilations=[2, 3], scale=0.2)
    c = layer(b, 37, 21, 2, 4, pads=[1, 3, 0, 1], strides=[1, 2], scale=0.2)
    d = layer(c, 9, 37, 1, 1, strides=[2, 3], scale=0.2)
    means = q.through(q.node("GlobalAveragePool", c), 0.02, 3, dtype)
    e = layer(means, 70, 37, 1, 1, scale=0.02)
    f = layer(e, 20, 70, 1, 1, scale=0.02)
    return q, [q.quantise(value, 0.1, 3, dtype) for value in (b, d, f)]


FOUR = [4] if LANES[-1] == 16 else []
CASES = [
    pytest.param(make, n, word, kinds[n == 8], marks=[pytest.mark.slow] * (n < LANES[-1]))
    for make, *kinds in (
        (images, np.uint8, np.int8),
        (groups, np.uint8, np.uint8),
        (matrices, np.int8, np.uint8),
        (windows, np.uint8, np.uint8),
    )
    for n in LANES
    for word in ([2, *FOUR] if n == LANES[-1] else [2])
]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("make", "lanes", "word", "dtype"),
    CASES,
    ids=lambda case: getattr(case, "__name__", str(case)),
)
def test_cpu_equals_the_interpreter(
    make: Callable[[int, type], tuple[Quantised, list[str]]], lanes: int, word: int, dtype: type
) -> None:
    q, outputs = make(lanes, dtype)
    executable = tilewright.compile(
        import_onnx(q.model(*outputs)), "cpu", machine=machine(processor(lanes, word))
    )
    inputs = dict(zip([i.name for i in executable.inputs], q.feeds().values(), strict=True))
    found, expected = executable.run(inputs), executable.reference(inputs)
    for name, array in expected.items():
        assert np.unique(array).size > 5
        np.testing.assert_array_equal(found[name], array, err_msg=name)


PROGRAM = """
#include "quantised.h"
void dots(const uint8_t *x, const int8_t *w, int32_t *y, long count)
{
    for (long i = 0; i < count; i++)
        store_int32(y + i * LANES, dot_v(load_int32(y + i * LANES), word_at(x + 4 * i),
                                         words_at(w + 4 * LANES * i)));
}
void pairs(const uint8_t *x, const int8_t *w, int32_t *y, long count)
{
    for (long i = 0; i < count; i++) {
        int16_t wide[WIDE];
        widen(wide, x + i * WIDE, WIDE);
        KEEP(wide);
        for (int j = 0; j < WIDE / 2; j++)
            store_int32(y + i * LANES,
                        dot_wide_v(load_int32(y + i * LANES), wide_pair_at(wide + 2 * j),
                                   byte_pairs_at(w + 2 * LANES * (i * (WIDE / 2) + j))));
    }
}
"""

_WIDE = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]
FLAGS = {
    "portable": (4, [], ""),
    "avx2": (8, ["-mavx2", "-mfma"], "avx2"),
    "avx512bw": (16, _WIDE, "avx512bw"),
    "vnni": (16, [*_WIDE, "-mavx512vnni"], "avx512_vnni"),
}


def built(name: str, folder: Path, *options: str) -> ctypes.CDLL:
    """The library of ``PROGRAM`` for an instruction set, if this processor has it."""
    lanes, flags, needs = FLAGS[name]
    cpuinfo = Path("/proc/cpuinfo")
    known = cpuinfo.read_text() if cpuinfo.exists() else ""
    if needs not in known:
        pytest.skip(f"this processor has no {name}")
    source, library = folder / "dots.c", folder / "dots.so"
    source.write_text(f"#define LANES {lanes}\n{PROGRAM}")
    command = [*find_compiler(), "-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Werror"]
    command += [*flags, *options, f"-I{HEADERS}", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("name", FLAGS)
def test_dot_products_are_exact_on_every_instruction_set(name: str, tmp_path: Path) -> None:
    library, lanes = built(name, tmp_path, "-DWIDE=4"), FLAGS[name][0]
    random, count = np.random.default_rng(0), 200
    x = random.integers(0, 256, (count, 4)).astype(np.uint8)
    w = random.integers(-128, 128, (count, lanes, 4)).astype(np.int8)
    x[0], w[0], w[1] = 255, -128, 127
    x[1] = 255  # the sums that saturate in 16 bits
    first = random.integers(-(2**31), 2**31, (count, lanes)).astype(np.int32)
    with np.errstate(over="ignore"):
        products = x[:, None, :].astype(np.int32) * w
        expected = first + products.sum(axis=2, dtype=np.int32)
    halves = np.ascontiguousarray(w.reshape(count, lanes, 2, 2).swapaxes(1, 2))
    for function, weights_of_it in ((library.dots, w), (library.pairs, halves)):
        y = first.copy()
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, weights_of_it, y)]
        function(*pointers, ctypes.c_long(count))
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("wide", [2, 6, 8, 10, 14, 16, 20, 26, 44])
def test_bytes_widen_in_runs_of_any_length(wide: int, tmp_path: Path) -> None:
    library, lanes = built("portable", tmp_path, f"-DWIDE={wide}"), 4
    random, count = np.random.default_rng(wide), 3
    x = random.integers(0, 256, (count, wide // 2, 2)).astype(np.uint8)
    w = random.integers(-128, 128, (count, wide // 2, lanes, 2)).astype(np.int8)
    y = np.zeros((count, lanes), np.int32)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, w, y)]
    library.pairs(*pointers, ctypes.c_long(count))
    expected = np.einsum("cpe,cple->cl", x.astype(np.int32), w.astype(np.int32))
    np.testing.assert_array_equal(y, expected)


TABLES = """
#include "quantised.h"
void tables(const uint8_t *x, const char *table, uint8_t *plain, int8_t *with_sign, long count)
{
    for (long i = 0; i < count; i += LANES) {
        store_uint8(plain + i, look_up_uint8_v(load_uint8(x + i), table, 0));
        store_int8(with_sign + i, look_up_int8_v(load_int8((const int8_t *)x + i), table, -128));
    }
}
"""


@pytest.mark.parametrize(
    ("lanes", "flags", "needs"),
    [(4, [], ""), (16, [*FLAGS["avx512bw"][1], "-mavx512vbmi"], "avx512vbmi")],
)
def test_tables_give_every_entry(lanes: int, flags: list[str], needs: str, tmp_path: Path) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if needs not in (cpuinfo.read_text() if cpuinfo.exists() else ""):
        pytest.skip(f"this processor has no {needs}")
    source, library = tmp_path / "tables.c", tmp_path / "tables.so"
    source.write_text(f"#define LANES {lanes}\n{TABLES}")
    command = [*find_compiler(), "-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Werror"]
    command += [*flags, f"-I{HEADERS}", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    random = np.random.default_rng(7)
    x = random.permutation(np.arange(1024) % 256).astype(np.uint8)
    table = random.integers(0, 256, 257).astype(np.uint8)
    plain, with_sign = np.zeros(1024, np.uint8), np.zeros(1024, np.int8)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (x, table, plain, with_sign)]
    ctypes.CDLL(str(library)).tables(*pointers, ctypes.c_long(1024))
    np.testing.assert_array_equal(plain, table[x])
    expected = table[x.view(np.int8).astype(int) + 128].view(np.int8)
    np.testing.assert_array_equal(with_sign, expected)


@pytest.mark.parametrize("channels", [3, 24])
def test_images_are_padded_row_by_row(channels: int, tmp_path: Path) -> None:
    q = Quantised(channels)
    x = q.through(q.input(2, channels, 6, 7), 0.02, 5, np.uint8)
    y = q.node("Conv", x, weights(q, np.int8, (16, channels, 3, 3)), pads=[1, 2, 0, 1])
    model = q.model(q.quantise(y, 0.1, 100, np.uint8))
    described = machine(processor(LANES[-1]))
    executable = tilewright.compile(
        import_onnx(model), "cpu", machine=described, directory=tmp_path / "package"
    )
    inputs = dict(zip([i.name for i in executable.inputs], q.feeds().values(), strict=True))
    found, expected = executable.run(inputs), executable.reference(inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    sources = [path.read_text() for path in (tmp_path / "package").rglob("*.c")]
    assert any("memcpy(q + " in source for source in sources)


def test_machines_of_fixed_point_take_the_values() -> None:
    q = Quantised(1)
    x = q.through(q.input(1, 3, 8, 8), 0.02, 121, np.uint8)
    y = q.node("Relu", q.node("Conv", x, weights(q, np.int8, (16, 3, 3, 3))))
    model, unit = q.model(q.through(y, 0.05, 0, np.uint8)), 0.05
    executable = tilewright.compile(import_onnx(model), "cambricon-x")
    feeds = q.feeds()
    inputs = dict(zip([i.name for i in executable.inputs], feeds.values(), strict=True))
    found = executable.run(inputs)
    assert executable.check(inputs, found).equal
    (got,), (want,) = found.values(), onnxruntime_of(model, feeds).values()
    assert np.ptp(want) > 20 * unit
    np.testing.assert_allclose(got, want, rtol=0, atol=1.01 * unit)
