"""Kernels as words of ACC-C, and what they make of a main memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
from tests.targets.generic.kernel_cases import Array, Case

from tilewright.ir import integer
from tilewright.machine import Machine
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.cambricon.lowering.network import CONSTANTS, Lowering
from tilewright.targets.cambricon.lowering.temporaries import ALIGNMENT
from tilewright.targets.cambricon.simulate import Result, run
from tilewright.tile.dialect import BufferOp, ProgramOp
from tilewright.tile.lower import tile

WEIGHTS_AT = 0
BEHIND = 4096


CONSTANT_BYTES = 1 << 16
"""Room for the constants of a kernel's code."""


def run_case(
    case: Case, schedule: Schedule, machine: Machine, *, at_end: bool = False
) -> tuple[Array, Result, Lowering]:
    """The result of a kernel under a schedule; its weights lie in segments.

    The image lies at the end of main memory, so that a transfer that goes beyond it is refused.
    ``at_end`` moves the buffers in VSM to its end, as those of a package's kernels may lie.
    """
    placements: dict[str, tuple[str, int, tuple[int, ...]]] = {}
    sizes = {"weights": 0, "activations": 0}
    for operand in sorted(case.kernel.operands, key=lambda operand: operand.role == "input"):
        arena = "weights" if operand.role in ("weight", "bias") else "activations"
        layout = Layout.parse(operand.layout, len(operand.shape))
        placements[operand.name] = (arena, sizes[arena], layout.strides(operand.shape))
        size = layout.size(operand.shape) * operand.element_bytes
        sizes[arena] += -(-size // 64) * 64
    bases = {"weights": 0, CONSTANTS: sizes["weights"]}
    bases["activations"] = sizes["weights"] + CONSTANT_BYTES
    lowering = Lowering(machine, bases, Counter())
    program = tile(case.kernel, schedule, machine, placements)
    if at_end:
        primitive = machine.primitive(schedule.primitive)
        _move_to_end(program, machine.memory_beside(primitive, "vsm").room or 0)
    lowering.kernel(program)
    assert len(lowering.image) <= CONSTANT_BYTES
    main = np.zeros(bases["activations"] + sizes["activations"], np.uint8)
    for operand in case.kernel.inputs:
        arena, offset, _ = placements[operand.name]
        data = case.operands[operand.name]
        layout = Layout.parse(operand.layout, len(operand.shape))
        cut = lowering.segments.get(offset) if operand.role == "weight" else None
        if operand.role == "weight":
            lowering.fill(offset, data)
        flat = layout.pack(data) if cut is None else cut.relaid(data)
        raw = np.ascontiguousarray(flat).reshape(-1).view(np.uint8)
        main[bases[arena] + offset :][: raw.size] = raw
    main[bases[CONSTANTS] :][: len(lowering.image)] = np.frombuffer(lowering.image, np.uint8)
    result = run(lowering.words(), machine, main)
    arena, offset, _ = placements[case.kernel.output.name]
    operand = case.kernel.output
    layout = Layout.parse(operand.layout, len(operand.shape))
    shape, dtype = layout.physical_shape(operand.shape), case.expected.dtype
    raw = main[bases[arena] + offset :][: int(np.prod(shape)) * dtype.itemsize]
    return layout.unpack(raw.view(dtype).reshape(shape), operand.shape), result, lowering


def _move_to_end(program: ProgramOp, room: int) -> None:
    buffers = [op for op in program.walk() if isinstance(op, BufferOp) and op.memory == "vsm"]
    top = max(each.get("address") + each.places * each.get("bytes") for each in buffers)
    shift = (room - top) // ALIGNMENT * ALIGNMENT
    for each in buffers:
        each.address = integer(each.get("address") + shift)
