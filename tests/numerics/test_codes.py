"""Formats of at most 8 bits, bit for bit as ml_dtypes has them: in NumPy, and in the C of cpu."""

import ctypes
import subprocess
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.c.meaning import element_expression
from tilewright.numerics import pointwise
from tilewright.numerics.codes import FLOAT_CODES, FORMATS
from tilewright.targets.cpu.headers import header

SCALARS = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool")
C_OF = {"float32": "float", "float64": "double", "float16": "uint16_t", "bool": "uint8_t"}


def numbers(dtype: str) -> np.ndarray:
    """Numbers of a type: all where there are few, special ones, and those between codes."""
    if dtype in FORMATS:
        return np.arange(2 ** FORMATS[dtype].bits, dtype=np.uint8).view(dtype)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return np.arange(-128 if kind.kind == "i" else 0, 128).astype(kind)
    if kind.kind == "b":
        return np.array([False, True])
    if dtype == "float16":
        return np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-38, 1e-45])]
    found.append(
        np.random.default_rng(1).normal(0, 1, 4000) * 2.0 ** np.arange(-20, 20).repeat(100)
    )
    for name in FLOAT_CODES:
        codes = np.arange(2 ** FORMATS[name].bits, dtype=np.uint8).view(name).astype(np.float64)
        ordered = np.unique(codes[np.isfinite(codes)])
        middles = (ordered[1:] + ordered[:-1]) / 2
        for middle in (ordered, middles, np.array([ordered[-1] + (ordered[-1] - ordered[-2]) / 2])):
            for end in (-np.inf, np.inf):
                found.append(np.nextafter(middle.astype(kind), end, dtype=kind))
            found.append(middle)
    values = np.concatenate(found)
    return np.concatenate([values, -values]).astype(kind)


def expected(x: np.ndarray, to: str, *, saturate: bool) -> np.ndarray:
    """The codes by ml_dtypes and by ONNX's table for ``saturate``."""
    form = FORMATS[to]
    if form.fraction is None:
        whole = np.where(np.abs(x) < 2.0**31, x, 0).astype(np.int64)
        return (whole & (2**form.bits - 1)).astype(np.uint8)
    if saturate:
        most = float(ml_dtypes.finfo(to).max)
        x = np.where(np.isnan(x), x, np.clip(x.astype(np.float64), -most, most))
    return x.astype(to).view(np.uint8)


CASES = [
    *((a, b, s) for a, b, s in product(SCALARS, FORMATS, (False, True)) if FORMATS[b].signed),
    *((a, b, False) for a, b in product(FORMATS, ("float32", "float16", "int32", "bool"))),
    *((a, b, False) for a, b in product(SCALARS, ("uint4", "uint2"))),
    *((a, b, True) for a, b in product(FORMATS, ("float8_e5m2", "float4_e2m1fn", "int4"))),
]
CASES = [case for case in CASES if not case[2] or case[1] in FLOAT_CODES]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("codes")
    lines = ['#include "scalars.h"']
    for number, (source, to, saturate) in enumerate(CASES):
        a, b = ("uint8_t" if t in FORMATS else C_OF.get(t, f"{t}_t") for t in (source, to))
        value = element_expression("cast", ["x[i]"], {"saturate": saturate}, [source], to)
        lines.append(f"void f{number}(const {a} *x, {b} *y, long n)")
        lines.append(f"{{ for (long i = 0; i < n; i++) y[i] = {value}; }}")
    (folder / "scalars.h").write_text(header("scalars.h"))
    (folder / "codes.c").write_text("\n".join(lines))
    build = [
        "cc",
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        str(folder / "codes.so"),
        str(folder / "codes.c"),
    ]
    subprocess.run([*build, "-lm"], check=True)
    return ctypes.CDLL(str(folder / "codes.so"))


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: "-".join(map(str, CASES[n])))
def test_codes_are_those_of_ml_dtypes(number: int, library: ctypes.CDLL) -> None:
    source, to, saturate = CASES[number]
    x = numbers(source)
    with np.errstate(all="ignore"):
        values = {"to": to, **({"saturate": True} if saturate else {})}
        ours = pointwise.evaluate("cast", [x], attributes=values)
        wide = x.astype(np.float32) if source in FORMATS else x
        if to in FORMATS:
            want = expected(wide, to, saturate=saturate).view(to)
        elif to == "int32":
            want = np.where(np.isfinite(wide) & (np.abs(wide) < 2**31), wide, -(2.0**31)).astype(to)
        else:
            want = wide.astype(to)
    got = np.zeros_like(want)
    getattr(library, f"f{number}")(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(got.ctypes.data), ctypes.c_long(x.size)
    )
    for found in (ours, got):
        assert found.dtype == want.dtype
        if to in FORMATS:
            np.testing.assert_array_equal(found.view(np.uint8), want.view(np.uint8))
        else:
            np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))
            np.testing.assert_array_equal(
                np.signbit(found.astype(np.float64))[~np.isnan(want)],
                np.signbit(want.astype(np.float64))[~np.isnan(want)],
            )
