"""Instructions on elements against NumPy, with random sizes, places, widths and modifiers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.targets.cambricon.simulate.running import Array, elements, execute, placed

from tilewright.numerics import fixed, tables
from tilewright.targets.cambricon.isa import BY_MNEMONIC
from tilewright.targets.cambricon.machine import SMALL, machine

MACHINE = machine(SMALL)
VSM, MSM = SMALL.vsm, SMALL.msm

PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "VAV": np.add,
    "VSV": np.subtract,
    "VMV": np.multiply,
    "MAM": np.add,
    "MSM": np.subtract,
    "VGT": lambda a, b: (a > b).astype(np.int64),
    "VE": lambda a, b: (a == b).astype(np.int64),
    "VAND": np.bitwise_and,
    "VOR": np.bitwise_or,
    "VGTM": np.maximum,
    "VAS": np.add,
    "MMS": np.multiply,
    "VMOVE": lambda a, _: a,
    "MMOVE": lambda a, _: a,
    "VNOT": lambda a, _: (a == 0).astype(np.int64),
}
SCALED = ("VAS", "MMS")
SINGLE = ("VMOVE", "MMOVE", "VNOT")


def memories(rng: np.random.Generator) -> tuple[Array, Array]:
    """Random bytes; half of the 16-bit elements small, so that nothing always saturates."""

    def fill(size: int) -> Array:
        values = rng.integers(-32768, 32768, size // 2, dtype=np.int16)
        small = rng.integers(-3, 4, size // 2, dtype=np.int16)
        return np.where(rng.random(size // 2) < 0.5, values, small).view(np.uint8)

    return fill(VSM), fill(MSM)


def modifiers_of(name: str, rng: np.random.Generator) -> dict[str, int]:
    found: dict[str, int] = {}
    for modifier in BY_MNEMONIC[name].modifiers:
        if modifier.name in ("barrier", "table", "decay") or rng.random() < 0.5:
            continue
        low, high = modifier.range
        if modifier.name == "shift" and rng.random() < 0.7:
            low, high = -3, 20
        if modifier.name.startswith("left") and rng.random() < 0.7:
            high = 4
        found[modifier.name] = int(rng.integers(low, high + 1))
    for suffix in ("", "0", "1"):
        if found.get(f"wide{suffix}") and found.get(f"long{suffix}"):
            del found[f"wide{suffix}"]
    return {key: value for key, value in found.items() if value}


def text_of(name: str, modifiers: dict[str, int]) -> str:
    flags = {m.name: m.is_flag for m in BY_MNEMONIC[name].modifiers}
    parts = [key if flags[key] else f"{key}={value}" for key, value in modifiers.items()]
    return ".".join([name, *parts])


def width_of(modifiers: dict[str, int], suffix: str = "") -> int:
    return 4 if modifiers.get(f"wide{suffix}") else 8 if modifiers.get(f"long{suffix}") else 2


def wrapped(values: Array, wrap: bool) -> Array:
    return values.astype(np.int32).astype(np.int64) if wrap else values


def shifted(values: Array, shift: int) -> Array:
    return fixed.shift_right_rounded(values, shift)


def place(rng: np.random.Generator, memory: Array, count: int, width: int) -> int:
    return int(rng.integers(0, (memory.size - count * width) // width + 1)) * width


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_elements(name: str) -> None:
    rng = np.random.default_rng(BY_MNEMONIC[name].opcode)
    for trial in range(25):
        vsm, msm = memories(rng)
        on_matrix = name.startswith("M")
        memory = msm if on_matrix else vsm
        m = modifiers_of(name, rng) if trial else {}
        count = int(rng.integers(0, 1500 if on_matrix else 500))
        scalar = int(rng.integers(-(2**31), 2**31)) if trial % 2 else int(rng.integers(-9, 9))
        out = place(rng, memory, count, width_of(m))
        first = place(rng, memory, count, width_of(m, "0"))
        second = place(rng, memory, count, width_of(m, "1"))
        if trial % 5 == 1:
            first = out = 0  # in place, and with what is written before it is read
        wrap = not any(m.get(f"long{suffix}") for suffix in ("", "0", "1"))
        a = wrapped(elements(memory, first, count, width_of(m, "0")) << m.get("left0", 0), wrap)
        b = np.full(count, scalar)
        if name not in (*SCALED, *SINGLE):
            b = elements(memory, second, count, width_of(m, "1"))
            b = wrapped(b << m.get("left1", 0), wrap)
        with np.errstate(over="ignore"):
            value = wrapped((np.minimum if m.get("min") else PAIRS[name])(a, b), wrap)
            value = shifted(value, m.get("shift", 0))
            if m.get("acc"):
                value = value + elements(memory, out, count, width_of(m))
        operands = [out, count, first]
        operands += [] if name in SINGLE else [scalar if name in SCALED else second]
        result = execute(text_of(name, m), operands, vsm, msm, machine=MACHINE)
        found, other = (result.msm, result.vsm) if on_matrix else (result.vsm, result.msm)
        expected = placed(memory, out, value, width_of(m))
        assert np.array_equal(found, expected), (name, m, operands)
        assert np.array_equal(other, vsm if on_matrix else msm)


def test_division_rounds_as_the_interpreter() -> None:
    rng = np.random.default_rng(1)
    for trial in range(25):
        vsm, msm = memories(rng)
        shift = int(rng.integers(-14, 3))
        text = f"VDV.wide0.wide1.shift={shift}" if trial % 2 else f"VDV.shift={shift}"
        width, count = (4, 300) if trial % 2 else (2, 700)
        a, b = elements(vsm, 0, count, width), elements(vsm, 4096, count, width)
        over, under = fixed.shift_right_rounded(a, shift), np.where(b == 0, 1, b)
        over, under = np.where(under < 0, -over, over), np.abs(under)
        value = np.where(b == 0, np.sign(over) * 40000, fixed.rounded_divide(over, under))
        result = execute(text, [8192, count, 0, 4096], vsm, msm, machine=MACHINE)
        assert np.array_equal(result.vsm, placed(vsm, 8192, value, 2))


@pytest.mark.parametrize(("name", "function"), [("VEXP", "exp"), ("VLOG", "log")])
def test_plain_functions_have_8_fraction_bits(name: str, function: str) -> None:
    vsm, msm = memories(np.random.default_rng(2))
    x = elements(vsm, 0, 800, 2)
    result = execute(name, [4096, 800, 0], vsm, msm, machine=MACHINE)
    value = tables.interpolate(tables.table(function, 8, 8), x)
    assert np.array_equal(result.vsm, placed(vsm, 4096, value.astype(np.int64), 2))
    middle = np.flatnonzero((x > 256) & (x < 1024))
    close = np.exp(x / 256) if name == "VEXP" else np.log(np.maximum(x, 1) / 256)
    error = np.abs(value[middle] / 256 - close[middle])
    assert error.max() < 0.15 * np.abs(close[middle]).max()


def test_softmax_exponential_equals_the_interpreter() -> None:
    rng = np.random.default_rng(3)
    for fraction in (-29, 0, 1, 8, 12, 46):
        vsm, msm = memories(rng)
        distance = rng.integers(0, 65536, 1000).astype(np.int32)
        vsm[:4000] = distance.view(np.uint8)
        text = f"VEXP.decay.wide.wide0.shift={fraction}"
        result = execute(text, [8192, 1000, 0], vsm, msm, machine=MACHINE)
        value = fixed.exponential(distance.astype(np.int64), fraction)
        assert np.array_equal(result.vsm, placed(vsm, 8192, value, 4))
