"""The 43 instructions: name, opcode, operands and meaning, each in one definition.

Operations and operands are those of the published instruction set; no opcode values are
published, so these are ours: control from 0x01, transfers from 0x10, matrix instructions from 0x20,
vector instructions from 0x30, vector logic from 0x40, scalar instructions from 0x50.
"""

from __future__ import annotations

from tilewright.targets.cambricon.formats import (
    Instruction,
    Modifier,
    Operand,
    Unit,
    instruction,
)
from tilewright.targets.cambricon.modifiers import (
    ACC,
    BARRIER,
    DECAY,
    ELEMENTWISE,
    FIRST,
    LEFT0,
    LONG,
    LONG0,
    MINIMUM,
    PRODUCT,
    RESULT,
    SCALAR_SHIFT,
    SECOND,
    SHIFT,
    TABLE,
    TRANSFER,
    TRANSFER_TABLE,
    WIDE,
    WIDE0,
    WIDE1,
)

VECTOR_CYCLES = "ceil(#/lanes), twice that where an element has 64 bits"
MATRIX_CYCLES = "ceil(#/lanes**2), twice that where an element has 64 bits"
PRODUCT_CYCLES = "ceil(voutsize/lanes) * ceil(vinsize/lanes)"
TRANSFER_CYCLES = "latency + bytes/bandwidth, the bandwidth shared with the other transfer"


def _register(name: str, meaning: str, *, written: bool = False) -> Operand:
    return Operand(name, "register", meaning, written)


SIZE = _register("size", "number of elements")
OFFSET = Operand("offset", "immediate", "added to the base, in bytes")
BASE = _register("base", "address in main memory, in bytes")


def _control() -> tuple[Instruction, ...]:
    offset = Operand("offset", "target", "words from this one to the next to execute")
    predicate = _register("predicate", "compared with 0")
    flow = "1, and the refill of the pipeline where the branch was not foreseen"
    return (
        instruction("J", 0x01, "scalar", (offset,), "pc += offset", cycles=flow),
        instruction(
            "CB",
            0x02,
            "scalar",
            (predicate, offset),
            "pc += offset if predicate > 0, else the next word",
            cycles=flow,
        ),
    )


def _transfer(
    mnemonic: str, opcode: int, unit: Unit, memory: str, meaning: str, *extra: Modifier
) -> Instruction:
    place = _register(memory, f"address in {memory.upper()}, in bytes")
    operands = (place, SIZE, BASE, OFFSET)
    modifiers = (*TRANSFER, *extra)
    return instruction(mnemonic, opcode, unit, operands, meaning, modifiers, TRANSFER_CYCLES)


def _transfers() -> tuple[Instruction, ...]:
    transfers = [
        _transfer(
            "VLOAD",
            0x10,
            "vector_dma",
            "vsm",
            "vsm[0:#] = main[base + offset:]",
            TRANSFER_TABLE,
        ),
        _transfer("VSTORE", 0x11, "vector_dma", "vsm", "main[base + offset:] = vsm[0:#]"),
        _transfer("MLOAD", 0x13, "matrix_dma", "msm", "msm[0:#] = main[base + offset:]"),
        _transfer("MSTORE", 0x14, "matrix_dma", "msm", "main[base + offset:] = msm[0:#]"),
    ]
    moves: tuple[tuple[str, int, Unit, str], ...] = (
        ("VMOVE", 0x12, "vector", VECTOR_CYCLES),
        ("MMOVE", 0x15, "matrix", MATRIX_CYCLES),
    )
    for mnemonic, opcode, unit, cycles in moves:
        letter = mnemonic[0].lower()
        out = _register(f"{letter}out", "address of the result, in bytes")
        source = _register(f"{letter}in", "address of the elements, in bytes")
        transfers.append(
            instruction(
                mnemonic,
                opcode,
                unit,
                (out, SIZE, source),
                f"{letter}out[i] = {letter}in[i]",
                (*RESULT, ACC, *FIRST),
                cycles,
            )
        )
    value = _register("value", "a scalar register", written=True)
    transfers += [
        instruction(
            "SLOAD",
            0x16,
            "scalar",
            (value, BASE, OFFSET),
            "value = the 32 bits at main[base + offset]",
            cycles="latency + 4/bandwidth, once the transfers before it have left these bytes",
        ),
        instruction(
            "SSTORE",
            0x17,
            "scalar",
            (_register("value", "a scalar register"), BASE, OFFSET),
            "the 32 bits at main[base + offset] = value",
            cycles="latency + 4/bandwidth, once the transfers before it have left these bytes",
        ),
        instruction(
            "SMOVE",
            0x18,
            "scalar",
            (value, Operand("source", "either", "register or number")),
            "value = source",
        ),
    ]
    return tuple(transfers)


def _matrix() -> tuple[Instruction, ...]:
    vout = _register("vout", "address of the result in VSM, in bytes")
    voutsize = _register("voutsize", "elements of the result")
    matrix = _register("m", "address of the matrix in MSM, in bytes")
    vin = _register("vin", "address of the input in VSM, in bytes")
    vinsize = _register("vinsize", "elements of the input")
    mout = _register("mout", "address of the result in MSM, in bytes")
    first, second = (_register(f"min{i}", "address of an input in MSM, in bytes") for i in "01")
    product = (vout, voutsize, matrix, vin, vinsize)
    outer = (
        mout,
        _register("vin0", "address in VSM, in bytes"),
        _register("size0", "rows of the result"),
        _register("vin1", "address in VSM, in bytes"),
        _register("size1", "columns of the result"),
    )
    scaled = (
        mout,
        SIZE,
        _register("min", "address of the matrix in MSM, in bytes"),
        _register("scalar", "a scalar register"),
    )
    pair = (mout, SIZE, first, second)
    operands = (*RESULT, ACC, *FIRST)
    return (
        instruction(
            "MMV",
            0x20,
            "matrix",
            product,
            "vout[o] = sum over i of m[o, i] * vin[i]; m is voutsize x vinsize, row by row",
            PRODUCT,
            PRODUCT_CYCLES,
        ),
        instruction(
            "VMM",
            0x21,
            "matrix",
            product,
            "vout[o] = sum over i of vin[i] * m[i, o]; m is vinsize x voutsize, row by row",
            PRODUCT,
            PRODUCT_CYCLES,
        ),
        instruction(
            "OP",
            0x22,
            "matrix",
            outer,
            "mout[i, j] = vin0[i] * vin1[j]; the matrix is size0 x size1, row by row",
            PRODUCT,
            "ceil(size0/lanes) * ceil(size1/lanes)",
        ),
        instruction(
            "MMS", 0x23, "matrix", scaled, "mout[i] = min[i] * scalar", operands, MATRIX_CYCLES
        ),
        instruction(
            "MAM", 0x24, "matrix", pair, "mout[i] = min0[i] + min1[i]", ELEMENTWISE, MATRIX_CYCLES
        ),
        instruction(
            "MSM", 0x25, "matrix", pair, "mout[i] = min0[i] - min1[i]", ELEMENTWISE, MATRIX_CYCLES
        ),
    )


VOUT = _register("vout", "address of the result in VSM, in bytes")
VIN = _register("v", "address of the input in VSM, in bytes")
V0, V1 = (_register(f"v{i}", "address of an input in VSM, in bytes") for i in "01")


def _vector_instruction(
    mnemonic: str,
    opcode: int,
    operands: tuple[Operand, ...],
    meaning: str,
    modifiers: tuple[Modifier, ...],
) -> Instruction:
    return instruction(mnemonic, opcode, "vector", operands, meaning, modifiers, VECTOR_CYCLES)


def _vector() -> tuple[Instruction, ...]:
    pair = (VOUT, SIZE, V0, V1)
    single = (VOUT, SIZE, VIN)
    value = _register("value", "the scalar register of the result", written=True)
    reduced = (value, SIZE, VIN)
    scalar = _register("scalar", "a scalar register")
    functions = (*RESULT, WIDE0, LONG0, LEFT0, TABLE)
    divide = (
        "vout[i] = floor(v0[i] / v1[i] + 1/2); division by 0 gives the largest number of the "
        "dividend's sign, 0/0 gives 0. With table: v0[i] times v1[i] (with 20 fraction bits) to "
        "the power that the table holds, see the table of powers"
    )
    exponential = (
        "vout[i] = exp(v[i]), both with 8 fraction bits; with table: the table at v[i], "
        "interpolated; with decay: exp(-v[i] / 2**shift)"
    )
    return (
        _vector_instruction("VAV", 0x30, pair, "vout[i] = v0[i] + v1[i]", ELEMENTWISE),
        _vector_instruction("VSV", 0x31, pair, "vout[i] = v0[i] - v1[i]", ELEMENTWISE),
        _vector_instruction("VMV", 0x32, pair, "vout[i] = v0[i] * v1[i]", ELEMENTWISE),
        _vector_instruction("VDV", 0x33, pair, divide, (*ELEMENTWISE, TABLE)),
        _vector_instruction(
            "VAS",
            0x34,
            (VOUT, SIZE, VIN, scalar),
            "vout[i] = v[i] + scalar",
            (*RESULT, ACC, *FIRST),
        ),
        _vector_instruction("VEXP", 0x35, single, exponential, (*functions, DECAY)),
        _vector_instruction(
            "VLOG",
            0x36,
            single,
            "vout[i] = log(v[i]), both with 8 fraction bits; with table: the table at v[i], "
            "interpolated",
            functions,
        ),
        _vector_instruction(
            "VDOT",
            0x37,
            (value, SIZE, V0, V1),
            "value = sum over i of v0[i] * v1[i], wrapping",
            (WIDE0, WIDE1, ACC, SHIFT, BARRIER),
        ),
        _vector_instruction(
            "RV",
            0x38,
            (VOUT, SIZE),
            "vout[i] = a random number, uniform in [0, 1) with 15 fraction bits",
            (WIDE, SHIFT, BARRIER),
        ),
        _vector_instruction(
            "VMAX", 0x39, reduced, "value = the greatest of v[i]; # is positive", (WIDE0, BARRIER)
        ),
        _vector_instruction(
            "VMIN", 0x3A, reduced, "value = the least of v[i]; # is positive", (WIDE0, BARRIER)
        ),
    )


def _logic() -> tuple[Instruction, ...]:
    pair = (VOUT, SIZE, V0, V1)
    masks = (WIDE, LONG, BARRIER, *FIRST, *SECOND)
    return (
        _vector_instruction("VGT", 0x40, pair, "vout[i] = 1 if v0[i] > v1[i], else 0", masks),
        _vector_instruction("VE", 0x41, pair, "vout[i] = 1 if v0[i] = v1[i], else 0", masks),
        _vector_instruction("VAND", 0x42, pair, "vout[i] = v0[i] and v1[i], bit by bit", masks),
        _vector_instruction("VOR", 0x43, pair, "vout[i] = v0[i] or v1[i], bit by bit", masks),
        _vector_instruction(
            "VNOT",
            0x44,
            (VOUT, SIZE, VIN),
            "vout[i] = 1 if v[i] = 0, else 0",
            (WIDE, LONG, BARRIER, *FIRST),
        ),
        _vector_instruction(
            "VGTM", 0x45, pair, "vout[i] = the greater of v0[i] and v1[i]", (*ELEMENTWISE, MINIMUM)
        ),
    )


def _scalar() -> tuple[Instruction, ...]:
    value = _register("value", "the result", written=True)
    first = _register("first", "a scalar register")
    second = Operand("second", "either", "register or number")
    binary = (value, first, second)
    unary = (value, first)
    shifted = (SCALAR_SHIFT,)
    return (
        instruction("SADD", 0x50, "scalar", binary, "value = first + second, wrapping"),
        instruction("SSUB", 0x51, "scalar", binary, "value = first - second, wrapping"),
        instruction("SMUL", 0x52, "scalar", binary, "value = first * second, wrapping", shifted),
        instruction(
            "SDIV",
            0x53,
            "scalar",
            binary,
            "value = first / second towards 0, wrapping; second must not be 0",
            shifted,
        ),
        instruction(
            "SEXP",
            0x54,
            "scalar",
            unary,
            "value = exp(first), both with 16 fraction bits, saturating",
        ),
        instruction(
            "SLOG",
            0x55,
            "scalar",
            unary,
            "value = log(first), both with 16 fraction bits; the least number where first <= 0",
        ),
        instruction("SGT", 0x56, "scalar", binary, "value = 1 if first > second, else 0"),
        instruction("SE", 0x57, "scalar", binary, "value = 1 if first = second, else 0"),
        instruction("SAND", 0x58, "scalar", binary, "value = first and second, bit by bit"),
    )


INSTRUCTIONS: tuple[Instruction, ...] = (
    *_control(),
    *_transfers(),
    *_matrix(),
    *_vector(),
    *_logic(),
    *_scalar(),
)
"""All 43, family by family."""
