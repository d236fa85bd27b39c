"""Operands that stay in the banks: the same bits, and LOADs only where they are not there still."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.dpu.lowering.lowered_cases import convolution, lower_case, points, pool
from tests.targets.dpu.lowering.test_circular_rows import chain
from tests.targets.generic.kernel_cases import Case

from tilewright.errors import TilewrightError
from tilewright.graph.placement import ACTIVATIONS
from tilewright.ir import Parser, VerifyException, integer, to_text
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.planning.schedule import Resident, Schedule
from tilewright.planning.space.residents import holding
from tilewright.targets.dpu.core import CORES as ALL
from tilewright.targets.dpu.core import ZU2
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.machine import FEW_CHANNELS, SHARED, machine_of
from tilewright.targets.dpu.registers import REGISTERS
from tilewright.targets.dpu.segments import Segments
from tilewright.tile.dialect import BufferOp, ProgramOp, context
from tilewright.tile.lower import tile
from tilewright.tile.tensors import separate_placements

CORES = (ZU2, ALL["zu9"])
KINDS: dict[str, Callable[[int], Case]] = {
    "conv": convolution,
    "pool": pool,
    "points": points,
    "conv-conv": lambda seed: chain(("conv", "conv"), seed, 1),
    "pool-conv": lambda seed: chain(("pool", "conv"), seed, 1),
}


def staying(case: Case, machine: Machine, share: int = 2, *, live_in: bool = False) -> Schedule:
    """A schedule for a part of the banks, with the first operand whole behind it."""
    name = case.kernel.inputs[0].name
    key = f"memory.{SHARED}.bytes"
    granule = machine.memory(SHARED).granule
    left = (machine.memory(SHARED).bytes or 0) // share // granule * granule
    held = Planner(machine.with_values({key: left})).plan(holding(case.kernel, {name}, SHARED))
    return replace(held.schedule, stays=(Resident(name, left, live_in),), rooms=((SHARED, left),))


def may_stay(case: Case) -> bool:
    """Whether tiles have one image, not of few channels, nor of groups that begin anywhere."""
    images, channels, *_ = case.kernel.inputs[0].shape
    groups = case.kernel.anchor.extents.get("g", 1)
    return images == groups == 1 and channels > FEW_CHANNELS


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", but_fast(range(5), range(1)))
def test_tiles_are_boxes_of_what_stays(name: str, seed: int) -> None:
    """One load of all of it, whatever the tiles; tiles in a small part of the banks are small."""
    core, case = CORES[seed % 2], KINDS[name](seed)
    if not may_stay(case):
        return
    machine = machine_of(core)
    schedule = staying(case, machine, share=2 if seed % 3 else 8)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert f"{case.kernel.inputs[0].name} stays at" in str(schedule)
    made = lower_case(case, core, machine, schedule)
    assert not made.segments.problems()
    np.testing.assert_array_equal(made.run(), case.expected)
    assert len(np.unique(case.expected)) > 1


def image_loads(programs: list[ProgramOp | None]) -> list[int]:
    """Bytes of activations that each kernel of a row loads; None is a step of the host."""
    lowering = Lowering(ZU2)
    for program in programs:
        if program is None:
            lowering.barrier()
        else:
            lowering.kernel(program)
    segments = Segments.read(ZU2, lowering.words())
    assert not segments.problems()
    return [
        sum(
            op.fields["length"] * op.fields["channel"]
            for op in segments.operations[start:end]
            if op.mnemonic == "load" and op.fields["reg_id"] == REGISTERS[ACTIVATIONS]
        )
        for start, end in lowering.starts
    ]


def test_what_is_found_is_not_loaded() -> None:
    machine, case = machine_of(ZU2), next(filter(may_stay, map(convolution, range(9))))
    kernel, places = case.kernel, separate_placements(case.kernel)
    keeps = tile(kernel, staying(case, machine), machine, places)
    finds = tile(kernel, staying(case, machine, live_in=True), machine, places)
    (buffer,) = (op for op in keeps.walk() if isinstance(op, BufferOp) and op.stays is not None)
    text = to_text(keeps)
    assert to_text(Parser(context(), text).parse_op()) == text and " stays" in text
    size, rest = (image_loads([program])[0] for program in (keeps, finds))
    assert size > 0 and rest == 0
    assert image_loads([keeps, finds, finds]) == [size, 0, 0]
    buffer.slots = integer(2)
    with pytest.raises(VerifyException, match="one slot"):
        keeps.verify()


def test_buffers_keep_to_their_room() -> None:
    """A schedule whose room is too small for its buffers is refused."""
    machine, case = machine_of(ZU2), chain(("conv", "conv"), 0, 1)
    schedule, places = staying(case, machine), separate_placements(case.kernel)
    program = tile(case.kernel, schedule, machine, places)
    buffers = [op for op in program.walk() if isinstance(op, BufferOp) and op.stays is None]
    largest = max(buffers, key=lambda op: op.get("bytes") * op.places)
    room = largest.get("bytes") * largest.places - machine.memory(largest.memory).granule
    small = replace(schedule, rooms=(*schedule.rooms, (largest.memory, room)))
    with pytest.raises(TilewrightError, match="tile-capacity"):
        tile(case.kernel, small, machine, places)
