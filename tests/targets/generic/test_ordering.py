"""Machines with flags, reply words and tokens: words compute the same, and every one of what
orders the engines is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic.kernel_cases import Case, conv_case, lower_case, matmul_case, points_case
from tests.targets.generic.test_deep_machine import CASES as DEEP
from tests.targets.generic.test_generic_schedules import random_schedule

from tilewright.codegen.words import assemble, disassemble
from tilewright.errors import TilewrightError
from tilewright.machine import Machine, load_machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.planning import Planner
from tilewright.planning.schedule import Schedule
from tilewright.simulate.timing import simulate
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import Instruction, InstructionSet, derive
from tilewright.targets.generic.lower import Lowering
from tilewright.targets.generic.program import Program, decode
from tilewright.targets.generic.simulate import Simulator
from tilewright.targets.generic.timer import timed_kernel
from tilewright.targets.generic.timing import check_races, time_program

FLAGS = Path(__file__).parents[3] / "examples" / "machines" / "flags.toml"
STYLES = {
    "flags": Synchronisation(style="flags", ids=8),
    "one flag": Synchronisation(style="flags", ids=1),
    "counting flags": Synchronisation(style="flags", ids=4, depth=16),
    "reply words": Synchronisation(style="replies", ids=24),
    "tokens": Synchronisation(style="tokens"),
}
KERNELS = {"convolution": conv_case, "product": matmul_case, "elementwise": points_case}
MOST_WORDS = 160


def of_style(name: str) -> Machine:
    data = {**MACHINE.to_json(), "synchronisation": STYLES[name].model_dump()}
    return Machine.from_json(data)


def small_program(
    style: str, kind: str, slots: int, seed: int
) -> tuple[Case, Schedule, InstructionSet]:
    """A kernel and a schedule under which it has few words, but more tiles than slots."""
    machine = of_style(style)
    instructions = derive(machine)
    pick = np.random.default_rng(seed)
    for number in range(2000):
        case = KERNELS[kind](100 * seed + number // 20, fixed=True)
        schedule = random_schedule(case, pick)
        buffers = tuple((operand.name, slots) for operand in case.kernel.operands)
        schedule = Schedule(schedule.primitive, schedule.levels, buffers)
        try:
            size = lower_case(case, schedule, machine, instructions).program.size
        except TilewrightError as error:
            assert error.problems[0].code in ("tile-capacity", "tile-too-many", "tile-coverage")
            continue
        if 50 < size < MOST_WORDS:
            return case, schedule, instructions
    raise AssertionError("no schedule")


def wrong(instructions: InstructionSet, words: np.ndarray) -> str:
    """What the check of races says of a program."""
    program = decode(instructions, words)
    try:
        report = check_races(program, np.zeros(program.size, np.int64))
    except TilewrightError as error:
        assert error.problems[0].code in ("program-event", "program-deadlock")
        return str(error)
    return " ".join(map(str, [*report.races, *report.unwritten]))


def with_field(words: np.ndarray, row: int, one: Instruction, name: str, value: int) -> np.ndarray:
    changed = words.copy()
    lane, shift = one.format.places[name]
    mask = (1 << one.format.by_name[name].bits) - 1
    kept = int(changed[row, lane]) & ~(mask << shift)
    changed[row, lane] = np.uint64(kept | (value & mask) << shift)
    return changed


def mutations(program: Program, machine: Machine) -> Iterator[tuple[str, np.ndarray]]:
    """The words with one fault each."""
    words, count = program.units.reshape(program.size, -1), machine.synchronisation.count
    engines = range(len(machine.engines))
    for group in program.groups:
        one = group.instruction
        own = one.family.name in ("signal", "wait", "barrier")
        for index, row in enumerate(group.rows.tolist()):
            values = group.values(index)
            name = f"{row} {one.mnemonic} {values}"
            if own:
                yield f"without {name}", np.delete(words, row, 0)
            if "id" in values:
                for number in {(values["id"] + 1) % count, count - 1} - {values["id"]}:
                    yield f"{name} id {number}", with_field(words, row, one, "id", number)
            for end in ("to", "from"):
                if end in values:
                    other = (values[end] + 1) % (len(machine.engines) - 1)
                    yield f"{name} {end} {other}", with_field(words, row, one, end, other)
            if "word" in values:
                number = (values["word"] + 1) % count
                yield f"{name} word {number}", with_field(words, row, one, "word", number)
                for value in (values["value"] - 1, values["value"] + 1):
                    yield f"{name} value {value}", with_field(words, row, one, "value", value)
            for mask, bits in (("reply", range(count)), ("take", engines), ("put", engines)):
                for bit in bits:
                    if values.get(mask, 0) >> bit & 1:
                        value = values[mask] & ~(1 << bit)
                        yield f"{name} {mask} {value}", with_field(words, row, one, mask, value)


CASES = [(style, kind, slots) for style in STYLES for kind in KERNELS for slots in "123"]
FAST = [*((style, "elementwise", "2") for style in STYLES), ("flags", "convolution", "2")]


@pytest.mark.few(2)
@pytest.mark.parametrize("which", but_fast(CASES, FAST), ids="-".join)
def test_words_compute_the_same_and_every_fault_is_caught(which: tuple[str, str, str]) -> None:
    style, kind, slots = which[0], which[1], int(which[2])
    case, schedule, instructions = small_program(style, kind, slots, seed=slots)
    lowered = lower_case(case, schedule, instructions.machine, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    program = lowered.program
    assert wrong(instructions, program.units) == ""
    assert time_program(program, np.zeros(program.size, np.int64)).cycles > 0
    tried = 0
    for fault, words in mutations(program, instructions.machine):
        assert wrong(instructions, words), f"{fault} is not caught"
        tried += 1
    assert tried > 20


@pytest.mark.parametrize("kind", ["elementwise"])
@pytest.mark.parametrize("style", STYLES)
def test_the_timer_times_what_the_words_take(style: str, kind: str) -> None:
    case, schedule, instructions = small_program(style, kind, 2, seed=5)
    lowered = lower_case(case, schedule, instructions.machine, instructions)
    program = lowered.program
    timeline = time_program(program, np.zeros(program.size, np.int64))
    records = timed_kernel(lowered.tiles, Lowering(instructions, lowered.bases))
    if len(records) == program.size:  # No loads of function tables.
        assert simulate(records, instructions.machine).cycles == timeline.cycles


@pytest.mark.parametrize("synchronisation", ["flags", "tokens"])
@pytest.mark.parametrize("name", ["3x3", "rows"])
def test_paths_of_several_memories(name: str, synchronisation: str) -> None:
    """Flags of five engines, four a pair, on two levels of memory; and tokens in their place."""
    data = load_machine(FLAGS).to_json() | {"element": "fixed16", "accumulator": "fixed32"}
    if synchronisation == "tokens":
        data["synchronisation"] = "tokens"
    for primitive in data["primitives"]:
        primitive["epilogue"] = [["add"], ["relu", "clip"], ["requantise"]]
        tables = {"exp", "sqrt", "tanh", "sigmoid", "div"}
        primitive["operations"] = [one for one in primitive["operations"] if one not in tables]
    machine = Machine.from_json(data)
    instructions = derive(machine)
    case = DEEP[name]()
    found = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, found.schedule, machine, instructions)
    np.testing.assert_array_equal(lowered.run(), case.expected)
    assert wrong(instructions, lowered.program.units) == ""


def test_instructions_without_fields_run() -> None:
    """A barrier, between and behind others."""
    instructions = derive(of_style("flags"))
    program = decode(instructions, assemble(instructions, "barrier\nbarrier\n"))
    assert [list(group.columns) for group in program.groups] == [[]]
    Simulator(program, []).run()
    assert disassemble(instructions, program.units) == "barrier\nbarrier\n"
