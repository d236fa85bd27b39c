"""Fields that describe an operand in a memory: an address and a stride per axis, in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.words import Column, Columns, Field, bits_for
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.numerics.element_types import ELEMENTS
from tilewright.simulate.accesses import Touch

MAIN_ADDRESS_BITS = 40
"""Addresses and strides in main memory: a tebibyte."""

Values = Mapping[str, int]
"""The fields of one instruction by name."""


def address_bits(machine: Machine, memory: str) -> int:
    """Bits of an address in a memory."""
    size = None if memory == machine.main else machine.memory(memory).bytes
    return MAIN_ADDRESS_BITS if size is None else bits_for(size - 1)


def address_field(machine: Machine, memory: str, name: str, meaning: str) -> Field:
    """A field that holds an address in a memory."""
    return Field(name, address_bits(machine, memory), meaning, hexadecimal=True)


def stride_bits(machine: Machine, memory: str) -> int:
    """Bits of a stride in a memory."""
    size = None if memory == machine.main else machine.memory(memory).bytes
    return MAIN_ADDRESS_BITS if size is None else bits_for(size)


CODES = tuple(name for name, element in ELEMENTS.items() if element.kind != "code")
"""Element types by the number that stands for them in a field."""


def elements_of(machine: Machine, part: Primitive, role: str) -> tuple[str, ...]:
    """The element types of an operand among which a field chooses. Empty if there is one type, or
    only the machine's two, which a flag tells apart."""
    storage = part.operands.get(role)
    listed = () if storage is None else storage.elements
    return listed if set(listed) - {machine.element, machine.accumulator} else ()


def operand_fields(
    machine: Machine,
    name: str,
    memory: str,
    axes: Sequence[str],
    *,
    wide: bool = False,
    elements: Sequence[str] = (),
) -> tuple[Field, ...]:
    """Address and strides of operand ``name``; with ``wide``, a flag for 32-bit elements too, or
    a field for one of ``elements``."""
    meaning = f"first byte of {name} in {memory}"
    address = address_field(machine, memory, f"{name}.address", meaning)
    bits = stride_bits(machine, memory)
    strides = [Field(f"{name}.{axis}", bits, f"bytes from one {axis} to the next") for axis in axes]
    bits = f"elements are {machine.accumulator}, not {machine.element}"
    flags = [Field(f"{name}.wide", 1, bits)]
    if elements:
        bits = f"element type: {', '.join(f'{CODES.index(e)} {e}' for e in elements)}"
        kind = Field(f"{name}.element", bits_for(len(CODES) - 1), bits)
        return (address, *strides, kind)
    return (address, *strides, *(flags if wide and machine.number.is_narrow else ()))


def result_fields(machine: Machine, part: Primitive, axes: Sequence[str]) -> tuple[Field, ...]:
    """Address, strides and element type of the result."""
    elements = elements_of(machine, part, "output")
    memory = memory_of(part, "output")
    return operand_fields(machine, "output", memory, axes, wide=True, elements=elements)


def size_fields(machine: Machine, part: Primitive, dims: Sequence[str]) -> tuple[Field, ...]:
    """Extents of a tile's dims: as many as the largest memory of the operands has bytes."""
    bits = size_bits(machine, part)
    return tuple(Field(dim, bits, f"extent of {dim}", default=1) for dim in dims)


def size_bits(machine: Machine, part: Primitive) -> int:
    """Bits of an extent."""
    return bits_for(max(memory_bytes(machine, part, role) for role in part.operands))


def memory_bytes(machine: Machine, part: Primitive, role: str) -> int:
    """Bytes of the on-chip memory of an operand; refuses operands in main memory."""
    memory = machine.memory(part.operands[role].memory)
    if memory.bytes is None or memory.name == machine.main:
        raise refuse(
            "isa-in-place",
            f"{machine.name}: {part.name} keeps its {role} in {memory.name}",
            help="the generic instruction set computes on software-managed memories",
        )
    return memory.bytes


def memory_of(part: Primitive, role: str) -> str:
    """The memory of an operand, or "" if the primitive has no such role."""
    storage = part.operands.get(role)
    return storage.memory if storage is not None else ""


def element_bytes(machine: Machine, columns: Columns | Values, name: str) -> Any:
    """Bytes of an operand's elements, as a column or a number."""
    if f"{name}.element" in columns:
        sizes = np.array([ELEMENTS[code].bytes for code in CODES], np.int64)
        return sizes[np.asarray(columns[f"{name}.element"]) % len(CODES)]
    narrow, wide = machine.number.bytes, machine.sum.bytes
    return narrow + (wide - narrow) * columns.get(f"{name}.wide", columns[f"{name}.address"] * 0)


def element_dtype(machine: Machine, values: Values, name: str) -> np.dtype[Any]:
    """The NumPy type of an operand's elements."""
    if f"{name}.element" in values:
        return ELEMENTS[CODES[values[f"{name}.element"] % len(CODES)]].dtype
    return machine.sum.dtype if values.get(f"{name}.wide", 0) else machine.number.dtype


def touch(
    machine: Machine,
    columns: Columns,
    name: str,
    memory: str,
    axes: Sequence[tuple[str, Column]],
    *,
    write: bool = False,
    element: Column | None = None,
) -> Touch:
    """The box of an operand: ``axes`` has the axes' names, as in the fields, and sizes."""
    return Touch(
        memory,
        write,
        columns[f"{name}.address"],
        tuple(size for _, size in axes),
        tuple(columns[f"{name}.{axis}"] for axis, _ in axes),
        element_bytes(machine, columns, name) if element is None else element,
    )
