"""What stays on the chip is followed from kernel to kernel, as it is emitted."""

from pathlib import Path

import onnx
import pytest

from tests.end_to_end.end_to_end_models import image
from tests.network.test_residency import resident_machine, residual
from tilewright.compiler.pipeline import run_pipeline
from tilewright.errors import Problem, TilewrightError
from tilewright.ir import integer
from tilewright.targets.base import find_target
from tilewright.tile.accumulators import hold_sums
from tilewright.tile.dialect import BufferOp, ComputeOp, ProgramOp, programs_of
from tilewright.tile.residents import Residents

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


def problems_of(programs: list[ProgramOp]) -> list[Problem]:
    """The problems of programs that run in this order."""
    residents = Residents()
    return [problem for program in programs for problem in residents.problems(program)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[ProgramOp]:
    """The programs of a network some of whose results stay."""
    path = tmp_path_factory.mktemp("residents") / "model.onnx"
    onnx.save(residual(3), path)
    machine = resident_machine("fused", "maps", "")
    sample = image(onnx.load(path))
    state = run_pipeline(path, find_target("generic"), machine, calibration=[sample])
    modules = [kernel.program for kernel in state.kernels if kernel.program is not None]
    return [program for module in modules for program in programs_of(module)]


def stays(program: ProgramOp) -> list[BufferOp]:
    return [op for op in program.walk() if isinstance(op, BufferOp) and op.stays is not None]


@pytest.mark.slow
def test_what_is_found_was_left(programs: list[ProgramOp]) -> None:
    """Without the kernel that leaves it, or at another byte, each tensor is missed."""
    assert not problems_of(programs)
    leaving = [number for number, program in enumerate(programs) if stays(program)]
    assert len(leaving) > 1
    first = leaving[0]
    missing = problems_of(programs[:first] + programs[first + 1 :])
    assert missing and missing[0].code == "tile-resident"
    moved = programs[first].clone()
    for buffer in stays(moved):
        buffer.address = integer(buffer.get("address") - 16)
    assert problems_of([*programs[:first], moved, *programs[first + 1 :]])


def test_a_result_that_stays_has_no_room_for_sums(programs: list[ProgramOp]) -> None:
    """Accumulators are wider than the elements that other kernels find."""
    (compute, *_) = (
        op
        for program in programs
        for op in program.walk()
        if isinstance(op, ComputeOp)
        and isinstance(op.output.owner, BufferOp)
        and op.output.owner.stays is not None
    )
    hold_sums(compute, (), always=False)
    with pytest.raises(TilewrightError, match="no room for its sums"):
        hold_sums(compute, (), always=True)


def test_a_buffer_over_what_stays_is_reported(programs: list[ProgramOp]) -> None:
    """A kernel with a buffer of its own there takes the tensor away from those after it."""
    first = next(number for number, program in enumerate(programs) if stays(program))
    across = programs[first].clone()
    for buffer in stays(across):
        buffer.stays = None
    assert problems_of([*programs[: first + 1], across, *programs[first + 1 :]])


@pytest.mark.slow
def test_two_constants_at_one_byte_are_reported() -> None:
    """Nobody writes either: the second kernel would read what the first one needs."""
    target = find_target("cambricon")
    state = run_pipeline(LENET, target, target.machine(), calibration=[image(onnx.load(LENET))])
    modules = [kernel.program for kernel in state.kernels if kernel.program is not None]
    lenet = [program.clone() for module in modules for program in programs_of(module)]
    assert not problems_of(lenet)
    biases = [op for each in lenet for op in stays(each) if op.get("role", "") == "bias"]
    first, second = biases[:2]
    assert first.get("address") != second.get("address")
    second.address = integer(first.get("address"))
    (problem,) = problems_of(lenet)
    assert problem.code == "tile-resident" and second.tensor_op.symbol.data in str(problem)
