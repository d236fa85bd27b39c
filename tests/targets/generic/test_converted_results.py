"""Moves that round sums to the machine's elements, as results leave the unit that made them."""

from __future__ import annotations

from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest
from tests.end_to_end.test_number_formats import compiled, image_of, small_network
from tests.slow import but_fast
from tests.targets.generic import test_deep_machine as deep
from tests.targets.generic import test_int8_machine as int8
from tests.targets.generic.c.c_kernels import emitted, with_c
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.targets.generic.test_fused_machine import chain
from tests.tile.interpreter import run

from tilewright.cli.optimise import optimise_text
from tilewright.errors import TilewrightError
from tilewright.ir import Parser, StringAttr, VerifyException, to_text
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Budget, Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timer import timer
from tilewright.targets.generic.timing import check_races, time_program
from tilewright.tile.dialect import BufferOp, MoveOp, ProgramOp, context, programs_of
from tilewright.tile.lower import tile, tile_module

FILE = Path(__file__).parents[3] / "examples" / "machines" / "five-buffers.toml"
TEXT = FILE.read_text()
APART = TEXT.replace(', transforms = ["convert"]', "").replace(", converted = true", "")
"""The machine whose matrix unit rounds by itself."""
FIXED = {"element": "fixed16", "accumulator": "fixed32"}


def short_path(machine: Machine) -> Machine:
    """With results that go from the matrix unit to main memory in one move."""
    (move,) = (move for move in machine.moves if move.name == "l0c-to-ub")
    move = move.model_copy(update={"name": "l0c-to-gm", "target": "gm", "bytes_per_cycle": 64.0})
    return machine.model_copy(update={"moves": (*machine.moves, move)})


MACHINES = {
    "through a buffer": load_machine(FILE).with_values(FIXED),
    "to main memory": short_path(load_machine(FILE).with_values(FIXED)),
    "with flags": load_machine(FILE).with_values(
        {**FIXED, "synchronisation": "flags", "synchronisation.ids": 8}
    ),
    "of 8 bits": load_machine(FILE).with_values({"element": "fixed8", "accumulator": "fixed32"}),
}


def converting(program: ProgramOp) -> list[MoveOp]:
    moves = [op for op in program.walk() if isinstance(op, MoveOp) and op.transform is not None]
    return [op for op in moves if op.transform == StringAttr("convert")]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", but_fast(["through a buffer", "to main memory", "with flags"], ["through a buffer"])
)
@pytest.mark.parametrize("kernel", deep.CASES)
def test_words_and_the_interpreter_agree(kernel: str, name: str) -> None:
    """Words, their races and their bytes, and the interpreter in any order of the engines."""
    machine, case = MACHINES[name], deep.CASES[kernel]()
    chosen, instructions = (
        Planner(machine, budget=Budget(greedy=False)).plan(case.kernel),
        derive(machine),
    )
    lowered = lower_case(case, chosen.schedule, machine, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    kernels = np.zeros(lowered.program.size, np.int64)
    report = check_races(lowered.program, kernels)
    assert report.complete and not report.races and not report.unwritten
    fetched = lowered.program.size * instructions.machine.instruction_bytes
    timeline = time_program(lowered.program, kernels)
    assert timeline.main_bytes == chosen.moved_bytes + fetched, "of results, elements alone"
    program = tile(case.kernel, chosen.schedule, machine)
    assert len(converting(program)) == 1
    for interleave in (None, 1, 2):
        result = run(program, case.operands, machine, interleave=interleave)
        np.testing.assert_array_equal(result[case.kernel.output.name], case.expected)


def test_eight_bits() -> None:
    machine, case = MACHINES["of 8 bits"], int8.convolution(3)
    lowered = lower_case(
        case, Planner(machine).plan(case.kernel).schedule, machine, derive(machine)
    )
    np.testing.assert_array_equal(lowered.run(), case.expected)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("element", but_fast(["float16", "bfloat16"], ["float16"]))
@pytest.mark.parametrize("overflow", but_fast(["infinity", "saturate"], ["saturate"]))
def test_floats_are_rounded_as_the_unit_would(element: str, overflow: str, tmp_path: Path) -> None:
    """A network's results are the same numbers, infinite ones too, whoever rounds."""
    model, inputs = small_network(), {"image": image_of(9)[None] * 3e4}
    results: list[np.ndarray] = []
    for name, text in (("here", TEXT), ("there", APART)):
        path = tmp_path / f"{name}.toml"
        text = text.replace(
            'element = "float16"', f'element = "{element}"\noverflow = "{overflow}"'
        )
        path.write_text(text)
        (folder := tmp_path / name).mkdir()
        executable = compiled(model, folder, path)
        outputs = executable.run(inputs, check_races=True)
        results.append(next(iter(outputs.values())))
    np.testing.assert_array_equal(results[0], results[1])
    beyond = element == "float16" and overflow == "infinity"
    assert np.isfinite(results[0]).all() == (not beyond), "the image is too large for float16"


CHAINS = {
    "two convolutions": lambda: chain(1, (16, 24), (("conv", 24, 3, 1), ("conv", 40, 3, 1)))[0],
    "a pool behind": lambda: chain(2, (16, 20), (("conv", 24, 3, 1), ("max_pool", 0, 3, 2)))[0],
}


@pytest.mark.parametrize("name", CHAINS)
def test_kernels_of_a_chain_convert_what_they_hand_on(name: str) -> None:
    machine, case = MACHINES["through a buffer"], CHAINS[name]()
    chosen, instructions = Planner(machine).plan(case.kernel), derive(machine)
    lowered = lower_case(case, chosen.schedule, machine, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    program = tile(case.kernel, chosen.schedule, machine)
    products = [s for k in (case.kernel, *case.kernel.producers) for s in k.stages]
    assert len(converting(program)) == sum(stage.operation == "conv" for stage in products)
    took = timer(machine, instructions)(case.kernel, chosen.schedule)
    assert 0.98 < chosen.predicted_cycles / took < 1.02


@cache
def text_of() -> tuple[Case, str]:
    case = deep.convolution(1, 40, 50, 24, 3)
    machine = MACHINES["through a buffer"]
    schedule = Planner(machine).plan(case.kernel).schedule
    return case, to_text(tile_module(case.kernel, schedule, machine))


def test_the_text_is_kept_and_shows_both_types() -> None:
    case, text = text_of()
    assert '" as tensor<1x50x24x24x!tilewright.fixed<32,' in text.replace("] as", '" as')
    again = Parser(context(), text).parse_module()
    again.verify()
    assert to_text(again) == text
    (program,) = programs_of(again)
    (move,) = converting(program)
    assert isinstance(move.buffer, BufferOp) and move.buffer.memory == "l0c"
    result = run(program, case.operands, MACHINES["through a buffer"])
    np.testing.assert_array_equal(result[case.kernel.output.name], case.expected)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (' with "convert"', "", "stores with 'convert' what converts"),
        (' with "convert"', ' with "img2col"', "loads with 'img2col' what gathers"),
        (' on "mte3"', ' on "mte3" with "convert"', "stores with 'convert' what converts"),
        ("as tensor<1x50x", "as tensor<1x51x", "must name the tensor's type"),
        ("24x24x!tilewright.fixed<32", "24x24x!tilewright.fixed<8", "to shorter elements"),
    ],
)
def test_what_the_verifier_says(before: str, after: str, reason: str) -> None:
    _, text = text_of()
    head, _, tail = text.partition(" as tensor<")
    text = f"{head} as tensor<{tail}"
    assert before in text
    place = text.index(before, 0 if "mte3" in before or "with" in before else len(head))
    module = Parser(context(), text[:place] + after + text[place + len(before) :]).parse_module()
    with pytest.raises(VerifyException, match=reason):
        module.verify()


def test_a_machine_whose_move_only_copies(tmp_path: Path) -> None:
    """Its programs may not ask for more."""
    _, text = text_of()
    path = tmp_path / "apart.toml"
    path.write_text(APART)
    with pytest.raises(TilewrightError, match="l0c-to-ub, from l0c to ub, does not convert"):
        optimise_text(text, "check", str(path))


def test_results_take_the_room_of_sums() -> None:
    """Also where one tile reduces all: each element takes 4 bytes."""
    case = deep.product(8, 16, 16, 64)
    machine = MACHINES["through a buffer"]
    program = tile(case.kernel, Planner(machine).plan(case.kernel).schedule, machine)
    (move,) = converting(program)
    assert move.buffer.accumulates is None
    assert move.buffer.get("bytes") == prod(move.buffer.get("shape")) * 4
    small = machine.with_values({"memory.l0c.bytes": 16 * 64 * 2})
    chosen = Planner(small).plan(case.kernel)
    lowered = lower_case(case, chosen.schedule, small, derive(small))
    np.testing.assert_array_equal(lowered.run(), case.expected)
    (move,) = converting(tile(case.kernel, chosen.schedule, small))
    assert move.buffer.get("bytes") * move.buffer.places <= 16 * 64 * 2


def test_the_bytes_that_arrive_are_charged() -> None:
    case = deep.convolution(1, 32, 64, 14, 3)
    slow = MACHINES["through a buffer"].with_values({"move.l0c-to-ub.bytes_per_cycle": 0.25})
    chosen = Planner(slow).plan(case.kernel)
    lowered = lower_case(case, chosen.schedule, slow, derive(slow))
    cycles = time_program(lowered.program, np.zeros(lowered.program.size, np.int64)).cycles
    arriving = 64 * 14 * 14 * 2
    assert arriving * 4 <= cycles < arriving * 4 * 1.5


def test_functions_in_c(tmp_path: Path) -> None:
    case = deep.convolution(4, 20, 24, 9, 3)
    kernel = emitted(case, with_c(MACHINES["through a buffer"]))
    assert "unit_l0c_to_ub_convert(" in kernel.text
    library = kernel.build(tmp_path / "kernel")
    for order in kernel.orders:
        np.testing.assert_array_equal(kernel.run(library, order), case.expected)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (', transforms = ["convert"]', "", "l0c-to-ub, the first move on their way, converts no"),
        ('operands.residual = "ub"', 'operands.residual = {memory = "ub", converted = true}',
         "converted: is of outputs alone"),
        ('"float16"', '"float32"', "become 16-bit floats or fixed point on their way, not float32"),
        ("converted = true", 'converted = "yes"', "converted"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_machine_file(before: str, after: str, reason: str) -> None:
    assert before in TEXT
    with pytest.raises(TilewrightError, match=reason):
        load_machine(TEXT.replace(before, after, 1))
