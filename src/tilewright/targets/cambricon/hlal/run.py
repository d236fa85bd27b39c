"""The runtime (4.5): the host's arrays into main memory, the program, and arrays back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.numerics.fixed import quantise, quantise32
from tilewright.targets.cambricon.hlal.assemble import Program
from tilewright.targets.cambricon.hlal.rules import Sizes, computes
from tilewright.targets.cambricon.hlal.segments import SegmentedArray
from tilewright.targets.cambricon.machine import lanes_of
from tilewright.targets.cambricon.simulate.simulator import LIMIT, Result, run


@dataclass(frozen=True)
class Execution:
    """A finished run: the arrays that the program may write, and what it took."""

    outputs: dict[str, Array]
    """By name, shaped as declared: 16-bit or 32-bit integers."""
    scalars: dict[str, int]
    """The scalars of .static_rw."""
    result: Result


def sizes_of(machine: Machine) -> Sizes:
    """Return the sizes that programs may ask of a machine."""
    vsm, msm = (machine.memory(name).bytes or 0 for name in ("vsm", "msm"))
    return Sizes(vsm, msm, lanes_of(machine))


def execute(
    program: Program,
    machine: Machine,
    inputs: Mapping[str, Array],
    *,
    check: bool = False,
    trace: bool = False,
    limit: int = LIMIT,
) -> Execution:
    """Run a program on the simulator.

    ``inputs`` are by the names of tensors and filters, in their declared shapes: integers as they
    are, floats with the array's fraction bits. Read-only arrays must be given; others are zero if
    they are not. ``check`` looks for missed barriers, ``trace`` keeps events, ``limit`` bounds the
    instructions. Raises TilewrightError: ``hlal-input``, ``hlal-race``, ``hlal-read-only``, and
    what the simulator refuses, with the lines of the program.
    """
    words = program.at(0)
    main = load(program, inputs)
    before = {a.name: part(main, a).copy() for a in program.data.arrays if not a.writable}
    result = run(words, machine, main, limit=limit, trace=trace, races=check, label=program.where)
    problems = _races(program, result)
    for array in program.data.arrays:
        if not array.writable and not np.array_equal(before[array.name], part(main, array)):
            problems.append(
                Problem(
                    "hlal-read-only", f"{array.name!r} was written", program.name,
                    "declare it in .static_rw",
                )
            )  # fmt: skip
    if problems:
        raise TilewrightError(problems)
    outputs = {a.name: a.unpack(part(main, a)) for a in program.data.arrays if a.writable}
    scalars = {
        scalar.name: int(main[scalar.address : scalar.address + 4].view("<i4")[0])
        for scalar in program.data.scalars
        if scalar.writable
    }
    return Execution(outputs, scalars, result)


def load(program: Program, inputs: Mapping[str, Array]) -> NDArray[np.uint8]:
    """Main memory with the program's data from byte 0 on."""
    names = {array.name for array in program.data.arrays}
    problems = [
        Problem("hlal-input", "the program declares no such tensor or filter", name)
        for name in inputs
        if name not in names
    ]
    main = np.zeros(max(program.data.bytes, 64), np.uint8)
    for array in program.data.arrays:
        values = inputs.get(array.name)
        if values is not None:
            try:
                part(main, array)[:] = array.pack(converted(array, values))
            except TilewrightError as error:
                problems += error.problems
        elif not array.writable:
            problems.append(Problem("hlal-input", "is read-only and was not given", array.name))
    if problems:
        raise TilewrightError(problems)
    for scalar in program.data.scalars:
        if scalar.value is not None:
            place = main[scalar.address : scalar.address + 4]
            place[:] = np.array([scalar.value], "<i4").view(np.uint8)
    for table in program.data.tables.values():
        size = 2 * len(table.entries)
        main[table.address : table.address + size] = table.entries.astype("<i2").view(np.uint8)
    return main


def converted(array: SegmentedArray, values: Array) -> Array:
    """Values as an array holds them; a shape that differs only by axes of 1 element is accepted."""
    plain = tuple(size for size in array.shape if size > 1)
    if tuple(size for size in values.shape if size > 1) != plain:
        raise refuse(
            "hlal-input",
            f"has the shape {list(values.shape)}, and {list(array.shape)} is declared",
            array.name,
        )
    values = values.reshape(array.shape)
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all():
            raise refuse("hlal-input", "holds what is no number", array.name)
        make = quantise if array.element_bytes == 2 else quantise32
        return make(values, array.fraction)
    if not np.issubdtype(values.dtype, np.integer):
        raise refuse("hlal-input", f"has elements of type {values.dtype}", array.name)
    bounds = np.iinfo(array.dtype)
    if values.size and not (bounds.min <= values.min() and values.max() <= bounds.max):
        raise refuse("hlal-input", f"holds numbers of more than {bounds.bits} bits", array.name)
    return values.astype(array.dtype)


def part(main: NDArray[np.uint8], array: SegmentedArray) -> NDArray[np.uint8]:
    """An array's bytes in main memory."""
    return main[array.address : array.address + array.bytes]


def _races(program: Program, result: Result) -> list[Problem]:
    """Missed barriers: transfers run beside computes, statements of one kind in order (4.3.4.3).

    The vector and the matrix unit are kept in order by the queue alone, so pairs of theirs are not
    what ``@barrier`` is for, nor are pairs of transfers.
    """
    mnemonics = [statement.mnemonic for statement in program.statements if statement.mnemonic]
    problems = [
        Problem(
            "hlal-race",
            f"no @barrier stands between this and {program.where(race.first)}: both touch byte "
            f"{race.address} of {race.memory}",
            program.where(race.second),
            "put @barrier between them",
        )
        for race in result.races
        if computes(mnemonics[race.first]) != computes(mnemonics[race.second])
    ]
    if not problems and not result.races_complete:
        text = "too many pairs of instructions touch common bytes for all to be looked at"
        problems.append(Problem("hlal-race", text, program.name, "check the program's parts alone"))
    return problems
