"""The 43 instructions: name, opcode, unit, operands and meaning, a row each.

Operations and operands are those of the published instruction set; no opcode values are
published, so these are ours: control from 0x01, transfers from 0x10, matrix instructions from 0x20,
vector instructions from 0x30, vector logic from 0x40, scalar instructions from 0x50.

Compute instructions have their modifiers at the same bits; transfers, whose padding has six bits,
and scalar instructions have a few of their own.
"""

from __future__ import annotations

from tilewright.targets.cambricon.formats import (
    Instruction,
    Modifier,
    Operand,
    Unit,
    instruction,
    modifier,
)

WIDE = modifier("wide", 0, 1, "elements of the result have 32 bits and wrap")
WIDE0 = modifier("wide0", 1, 1, "elements of the first input have 32 bits")
WIDE1 = modifier("wide1", 2, 1, "elements of the second input have 32 bits")
LONG = modifier("long", 3, 1, "elements of the result have 64 bits and wrap")
LONG0 = modifier("long0", 4, 1, "elements of the first input have 64 bits")
LONG1 = modifier("long1", 5, 1, "elements of the second input have 64 bits")
ACC = modifier("acc", 6, 1, "adds what the result's place held, after the shift")
SHIFT = modifier(
    "shift",
    7,
    7,
    "divides by 2**N, half rounding up, before the result saturates or wraps",
    signed=True,
)
BARRIER = modifier(
    "barrier", 14, 1, "does nothing, but waits in the queue until all before it have completed"
)
TABLE = modifier("table", 15, 4, "the table that is looked up; 0 is the built-in function")
LEFT0 = modifier("left0", 19, 5, "multiplies elements of the first input by 2**N")
LEFT1 = modifier("left1", 24, 5, "multiplies elements of the second input by 2**N")
MINIMUM = modifier("min", 29, 1, "the minimum in place of the maximum")
DECAY = modifier(
    "decay", 30, 1, "exp(-v / 2**shift) with 16 fraction bits of v >= 0, as softmax takes it"
)

RESULT = (WIDE, LONG, SHIFT, BARRIER)
FIRST = (WIDE0, LONG0, LEFT0)
SECOND = (WIDE1, LONG1, LEFT1)
ELEMENTWISE = (*RESULT, ACC, *FIRST, *SECOND)
"""Modifiers and operands of an instruction on elements of two inputs."""
PRODUCT = (WIDE, ACC, SHIFT, BARRIER)
"""Modifiers of a product of 16-bit vectors and matrices."""

TRANSFER_WIDE = modifier("wide", 0, 1, "elements have 32 bits")
TRANSFER_TABLE = modifier(
    "table", 1, 4, "fills table N; the size counts its elements, the register of VSM is not used"
)
TRANSFER_BARRIER = modifier("barrier", 5, 1, BARRIER.meaning)
TRANSFER = (TRANSFER_WIDE, TRANSFER_BARRIER)

SCALAR_SHIFT = modifier(
    "shift",
    1,
    5,
    "SMUL: divides the product by 2**N, half rounding up; SDIV: the dividend times 2**N",
)

VECTOR_CYCLES = "ceil(#/lanes), twice that where an element has 64 bits"
MATRIX_CYCLES = "ceil(#/lanes**2), twice that where an element has 64 bits"
PRODUCT_CYCLES = "ceil(voutsize/lanes) * ceil(vinsize/lanes)"
OUTER_CYCLES = "ceil(size0/lanes) * ceil(size1/lanes)"
TRANSFER_CYCLES = "latency + bytes/bandwidth, the bandwidth shared with the other transfer"
ACCESS_CYCLES = "latency + 4/bandwidth, once the transfers before it have left these bytes"
BRANCH_CYCLES = "1, and the refill of the pipeline where the branch was not foreseen"


def _register(name: str, meaning: str, *, written: bool = False) -> Operand:
    return Operand(name, "register", meaning, written)


SIZE = _register("size", "number of elements")
OFFSET = Operand("offset", "immediate", "added to the base, in bytes")
BASE = _register("base", "address in main memory, in bytes")
JUMP = Operand("offset", "target", "words from this one to the next to execute")
SCALAR = _register("scalar", "a scalar register")
LOADED = _register("value", "a scalar register", written=True)
VSM = (_register("vsm", "address in VSM, in bytes"), SIZE, BASE, OFFSET)
MSM = (_register("msm", "address in MSM, in bytes"), SIZE, BASE, OFFSET)
"""The operands of a transfer to or from each scratchpad."""

VOUT = _register("vout", "address of the result in VSM, in bytes")
MOUT = _register("mout", "address of the result in MSM, in bytes")
VIN = _register("v", "address of the input in VSM, in bytes")
V0, V1 = (_register(f"v{i}", "address of an input in VSM, in bytes") for i in "01")
M0, M1 = (_register(f"min{i}", "address of an input in MSM, in bytes") for i in "01")
SINGLE, PAIR, MATRICES = (VOUT, SIZE, VIN), (VOUT, SIZE, V0, V1), (MOUT, SIZE, M0, M1)
VMOVE, MMOVE = (
    (
        _register(f"{m}out", "address of the result, in bytes"),
        SIZE,
        _register(f"{m}in", "address of the elements, in bytes"),
    )
    for m in "vm"
)
REDUCED = _register("value", "the scalar register of the result", written=True)
VECTOR_MATRIX = (
    VOUT,
    _register("voutsize", "elements of the result"),
    _register("m", "address of the matrix in MSM, in bytes"),
    _register("vin", "address of the input in VSM, in bytes"),
    _register("vinsize", "elements of the input"),
)
OUTER = (
    MOUT,
    _register("vin0", "address in VSM, in bytes"),
    _register("size0", "rows of the result"),
    _register("vin1", "address in VSM, in bytes"),
    _register("size1", "columns of the result"),
)
SCALED = (MOUT, SIZE, _register("min", "address of the matrix in MSM, in bytes"), SCALAR)
UNARY = (_register("value", "the result", written=True), _register("first", "a scalar register"))
BINARY = (*UNARY, Operand("second", "either", "register or number"))

MAPPED = (*RESULT, ACC, *FIRST)
"""Modifiers of an instruction on elements of one input."""
FUNCTION = (*RESULT, WIDE0, LONG0, LEFT0, TABLE)
LOGIC = (WIDE, LONG, BARRIER, *FIRST, *SECOND)

ROWS: tuple[
    tuple[str, int, Unit, tuple[Operand, ...], str, tuple[Modifier, ...], str], ...
] = (
    ("J", 0x01, "scalar", (JUMP,), "pc += offset", (), BRANCH_CYCLES),
    ("CB", 0x02, "scalar", (_register("predicate", "compared with 0"), JUMP),
     "pc += offset if predicate > 0, else the next word", (), BRANCH_CYCLES),
    ("VLOAD", 0x10, "vector_dma", VSM, "vsm[0:#] = main[base + offset:]",
     (*TRANSFER, TRANSFER_TABLE), TRANSFER_CYCLES),
    ("VSTORE", 0x11, "vector_dma", VSM, "main[base + offset:] = vsm[0:#]", TRANSFER,
     TRANSFER_CYCLES),
    ("MLOAD", 0x13, "matrix_dma", MSM, "msm[0:#] = main[base + offset:]", TRANSFER,
     TRANSFER_CYCLES),
    ("MSTORE", 0x14, "matrix_dma", MSM, "main[base + offset:] = msm[0:#]", TRANSFER,
     TRANSFER_CYCLES),
    ("VMOVE", 0x12, "vector", VMOVE, "vout[i] = vin[i]", MAPPED, VECTOR_CYCLES),
    ("MMOVE", 0x15, "matrix", MMOVE, "mout[i] = min[i]", MAPPED, MATRIX_CYCLES),
    ("SLOAD", 0x16, "scalar", (LOADED, BASE, OFFSET),
     "value = the 32 bits at main[base + offset]", (), ACCESS_CYCLES),
    ("SSTORE", 0x17, "scalar", (_register("value", "a scalar register"), BASE, OFFSET),
     "the 32 bits at main[base + offset] = value", (), ACCESS_CYCLES),
    ("SMOVE", 0x18, "scalar", (LOADED, Operand("source", "either", "register or number")),
     "value = source", (), "1"),
    ("MMV", 0x20, "matrix", VECTOR_MATRIX,
     "vout[o] = sum over i of m[o, i] * vin[i]; m is voutsize x vinsize, row by row",
     PRODUCT, PRODUCT_CYCLES),
    ("VMM", 0x21, "matrix", VECTOR_MATRIX,
     "vout[o] = sum over i of vin[i] * m[i, o]; m is vinsize x voutsize, row by row",
     PRODUCT, PRODUCT_CYCLES),
    ("OP", 0x22, "matrix", OUTER,
     "mout[i, j] = vin0[i] * vin1[j]; the matrix is size0 x size1, row by row",
     PRODUCT, OUTER_CYCLES),
    ("MMS", 0x23, "matrix", SCALED, "mout[i] = min[i] * scalar", MAPPED, MATRIX_CYCLES),
    ("MAM", 0x24, "matrix", MATRICES, "mout[i] = min0[i] + min1[i]", ELEMENTWISE, MATRIX_CYCLES),
    ("MSM", 0x25, "matrix", MATRICES, "mout[i] = min0[i] - min1[i]", ELEMENTWISE, MATRIX_CYCLES),
    ("VAV", 0x30, "vector", PAIR, "vout[i] = v0[i] + v1[i]", ELEMENTWISE, VECTOR_CYCLES),
    ("VSV", 0x31, "vector", PAIR, "vout[i] = v0[i] - v1[i]", ELEMENTWISE, VECTOR_CYCLES),
    ("VMV", 0x32, "vector", PAIR, "vout[i] = v0[i] * v1[i]", ELEMENTWISE, VECTOR_CYCLES),
    ("VDV", 0x33, "vector", PAIR,
     "vout[i] = floor(v0[i] / v1[i] + 1/2); division by 0 gives the largest number of the "
     "dividend's sign, 0/0 gives 0. With table: v0[i] times v1[i] (with 20 fraction bits) to "
     "the power that the table holds, see the table of powers",
     (*ELEMENTWISE, TABLE), VECTOR_CYCLES),
    ("VAS", 0x34, "vector", (*SINGLE, SCALAR), "vout[i] = v[i] + scalar", MAPPED, VECTOR_CYCLES),
    ("VEXP", 0x35, "vector", SINGLE,
     "vout[i] = exp(v[i]), both with 8 fraction bits; with table: the table at v[i], "
     "interpolated; with decay: exp(-v[i] / 2**shift)", (*FUNCTION, DECAY), VECTOR_CYCLES),
    ("VLOG", 0x36, "vector", SINGLE,
     "vout[i] = log(v[i]), both with 8 fraction bits; with table: the table at v[i], "
     "interpolated", FUNCTION, VECTOR_CYCLES),
    ("VDOT", 0x37, "vector", (REDUCED, SIZE, V0, V1),
     "value = sum over i of v0[i] * v1[i], wrapping",
     (WIDE0, WIDE1, ACC, SHIFT, BARRIER), VECTOR_CYCLES),
    ("RV", 0x38, "vector", (VOUT, SIZE),
     "vout[i] = a random number, uniform in [0, 1) with 15 fraction bits",
     (WIDE, SHIFT, BARRIER), VECTOR_CYCLES),
    ("VMAX", 0x39, "vector", (REDUCED, SIZE, VIN),
     "value = the greatest of v[i]; # is positive", (WIDE0, BARRIER), VECTOR_CYCLES),
    ("VMIN", 0x3A, "vector", (REDUCED, SIZE, VIN),
     "value = the least of v[i]; # is positive", (WIDE0, BARRIER), VECTOR_CYCLES),
    ("VGT", 0x40, "vector", PAIR, "vout[i] = 1 if v0[i] > v1[i], else 0", LOGIC, VECTOR_CYCLES),
    ("VE", 0x41, "vector", PAIR, "vout[i] = 1 if v0[i] = v1[i], else 0", LOGIC, VECTOR_CYCLES),
    ("VAND", 0x42, "vector", PAIR, "vout[i] = v0[i] and v1[i], bit by bit", LOGIC, VECTOR_CYCLES),
    ("VOR", 0x43, "vector", PAIR, "vout[i] = v0[i] or v1[i], bit by bit", LOGIC, VECTOR_CYCLES),
    ("VNOT", 0x44, "vector", SINGLE, "vout[i] = 1 if v[i] = 0, else 0",
     (WIDE, LONG, BARRIER, *FIRST), VECTOR_CYCLES),
    ("VGTM", 0x45, "vector", PAIR, "vout[i] = the greater of v0[i] and v1[i]",
     (*ELEMENTWISE, MINIMUM), VECTOR_CYCLES),
    ("SADD", 0x50, "scalar", BINARY, "value = first + second, wrapping", (), "1"),
    ("SSUB", 0x51, "scalar", BINARY, "value = first - second, wrapping", (), "1"),
    ("SMUL", 0x52, "scalar", BINARY, "value = first * second, wrapping", (SCALAR_SHIFT,), "1"),
    ("SDIV", 0x53, "scalar", BINARY,
     "value = first / second towards 0, wrapping; second must not be 0", (SCALAR_SHIFT,), "1"),
    ("SEXP", 0x54, "scalar", UNARY,
     "value = exp(first), both with 16 fraction bits, saturating", (), "1"),
    ("SLOG", 0x55, "scalar", UNARY,
     "value = log(first), both with 16 fraction bits; the least number where first <= 0", (), "1"),
    ("SGT", 0x56, "scalar", BINARY, "value = 1 if first > second, else 0", (), "1"),
    ("SE", 0x57, "scalar", BINARY, "value = 1 if first = second, else 0", (), "1"),
    ("SAND", 0x58, "scalar", BINARY, "value = first and second, bit by bit", (), "1"),
)  # fmt: skip
"""Mnemonic, opcode, unit, operands, meaning, modifiers and cycles of each, family by family."""

INSTRUCTIONS: tuple[Instruction, ...] = tuple(instruction(*row) for row in ROWS)
"""All 43, in the order of the rows."""
