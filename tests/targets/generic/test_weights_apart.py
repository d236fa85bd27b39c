"""A machine whose weights are in a memory of their own: words, bounds, room."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.end_to_end.end_to_end_models import image, lenet
from tests.end_to_end.test_number_formats import accelerator_agrees, compiled
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.targets.generic.test_deep_machine import convolution, product

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.planning.cost.bounds import homes_bytes, physical_bound
from tilewright.planning.cost.limits import move_text
from tilewright.planning.domain import Operand, with_operands
from tilewright.targets.base import find_target
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timing import check_races, time_program

FILES = Path(__file__).parents[3] / "examples" / "machines"
FILE = FILES / "microcontroller.toml"
ON_INTEGERS = {"element": "fixed16", "accumulator": "fixed32"}
MACHINE = load_machine(FILE).with_values(ON_INTEGERS)


def three_levels() -> Machine:
    """Three levels on the chip, to which weights lead from a memory of their own."""
    machine = load_machine(FILES / "three-levels.toml")
    (main,) = (memory for memory in machine.memories if memory.name == "dram")
    flash = main.model_copy(update={"name": "flash", "holds": ("weights",)})
    way = machine.move("dram", "l3").model_copy(update={"name": "flash-to-l3", "source": "flash"})
    added = {"memories": (*machine.memories, flash), "moves": (*machine.moves, way)}
    return machine.model_copy(update=added)


def with_bias(case: Case) -> Case:
    """The case with a bias that is no constant."""

    def changed(operand: Operand) -> Operand:
        return replace(operand, constant=False) if operand.role == "bias" else operand

    return replace(case, kernel=with_operands(case.kernel, changed))


CASES = {
    "convolution": (lambda: MACHINE, lambda: convolution(1, 24, 40, 14, 3, residual=True)),
    "product": (lambda: MACHINE, lambda: product(2, 20, 300, 70)),
    "a bias that is computed": (lambda: MACHINE, lambda: with_bias(convolution(4, 24, 40, 9, 3))),
    "three levels": (three_levels, lambda: convolution(3, 24, 40, 14, 3)),
}


def wiped(case: Case, memory: np.ndarray, *, constants: bool) -> np.ndarray:
    """Main memory's bytes with a pattern in place of the operands that are constants, or are not:
    operands lie one after the other, each on 64 bytes."""
    left, offset = memory.copy(), 0
    for operand in case.kernel.operands:
        size = -(-operand.bytes // 64) * 64
        if operand.is_constant == constants:
            left[offset : offset + size] = 0xA5
        offset += size
    return left


@pytest.mark.parametrize("name", CASES)
def test_weights_come_from_their_memory_and_the_rest_from_main_memory(name: str) -> None:
    machine, case = (make() for make in CASES[name])
    instructions = derive(machine)
    found = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, found.schedule, machine, instructions)
    held = wiped(case, lowered.memory, constants=False)
    lowered.memory = wiped(case, lowered.memory, constants=True)
    Simulator(lowered.program, [(0, lowered.memory)], [(0, held)]).run()
    np.testing.assert_array_equal(lowered.result(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert not report.races
    assert not report.unwritten
    timeline = time_program(lowered.program, kernels)
    fetched = lowered.program.size * machine.instruction_bytes
    assert timeline.main_bytes == found.moved_bytes + fetched
    assert timeline.cycles >= found.granule_bound
    assert 0.88 < found.predicted_cycles / timeline.cycles < 1.12


def test_lenet_is_computed_bit_for_bit(tmp_path: Path) -> None:
    model = lenet()
    inputs = image(model)
    executable = compiled(model, tmp_path, FILE, calibration=[inputs], numbers="int8")
    outputs = executable.run(inputs, check_races=True)
    assert executable.check(inputs, outputs).equal
    assert accelerator_agrees(executable, inputs) == 3


def test_bounds_count_the_bytes_of_each_memory_at_its_own_rate() -> None:
    kernel = product(4, 1, 400, 300).kernel
    constants, others = 400 * 300 * 2, (400 + 300) * 2
    assert homes_bytes(kernel, MACHINE) == {"psram": others, "flash": constants}
    (primitive,) = MACHINE.primitives_for("matmul")
    assert physical_bound(kernel, MACHINE, primitive) == constants / 4
    slower = MACHINE.with_values({"memory.flash.bytes_per_cycle": 1})
    assert physical_bound(kernel, slower, primitive) == constants
    plan = Planner(slower).plan(kernel)
    assert plan.predicted_cycles >= constants
    assert Planner(MACHINE).plan(kernel).predicted_cycles < 0.3 * plan.predicted_cycles
    slow = MACHINE.with_values({"move.flash-to-sram.bytes_per_cycle": 2})
    text = move_text(kernel, slow, Planner(slow).plan(kernel).schedule)
    assert text == "the move flash-to-sram, 2 bytes a cycle"


@pytest.mark.parametrize(
    ("memory", "size", "reason"),
    [
        ("flash", 40_000, r"weights take 64,000 bytes, 24,000 more than the 40,000 of flash"),
        (
            "psram",
            4_000,
            r"activations take 5,120 bytes \(.*\), 1,120 more than the 4,000 of",
        ),
    ],
)
def test_a_memory_that_is_too_small_is_refused_by_how_many_bytes(
    memory: str, size: int, reason: str, tmp_path: Path
) -> None:
    text = FILE.read_text()
    old = next(line for line in text.splitlines() if line.startswith(f"memory.{memory} "))
    new = f"memory.{memory} = {{ bytes = {size}, bytes_per_cycle = 4"
    new += ', holds = ["weights"] }' if memory == "flash" else " }"
    (tmp_path / "small.toml").write_text(text.replace(old, new))
    with pytest.raises(TilewrightError, match=rf"memory-capacity.*{reason}") as caught:
        compiled(lenet(), tmp_path, tmp_path / "small.toml", numbers="int8")
    assert len(caught.value.problems) == 1


def test_a_constant_that_no_move_leads_to_is_refused() -> None:
    moves = tuple(move for move in MACHINE.moves if move.name != "psram-to-sram")
    with pytest.raises(ValueError, match="no move leads from psram to sram"):
        Machine.model_validate({**MACHINE.model_dump(), "moves": [m.model_dump() for m in moves]})


def test_weights_that_are_computed_are_timed_where_they_lie() -> None:
    case = product(2, 20, 300, 70)

    def changed(operand: Operand) -> Operand:
        return replace(operand, computed=operand.role == "weight")

    kernel = with_operands(case.kernel, changed)
    plan = Planner(MACHINE, find_target("generic").timer(MACHINE)).plan(kernel)
    assert 0 < plan.cycles < float("inf")
