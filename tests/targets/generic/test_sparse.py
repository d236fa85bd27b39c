"""Compressed weights as words: bit for bit, on any schedule, and damaged streams are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.generic.kernel_cases import KernelBuilder, lower_case, sparse_case
from tests.tile.interpreter import run

from tilewright.errors import TilewrightError
from tilewright.numerics import sparse
from tilewright.planning import Planner
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.planners.schedules import schedule_of
from tilewright.planning.space.nests import arrangements, nests_of
from tilewright.planning.space.tilings import build_space
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.timing import check_races, time_program
from tilewright.tile.lower import tile

TINY = MACHINE.with_values({"memory.nbin.bytes": 4096, "memory.nbout.bytes": 1024})


@pytest.mark.parametrize("seed", but_fast(range(8), range(3)))
def test_graph_tile_and_words_agree(seed: int, instructions: InstructionSet) -> None:
    case = sparse_case(seed, (0.02, 0.2, 0.6, 1.0)[seed % 4])
    for machine, search in ((MACHINE, None), (MACHINE, Greedy()), (TINY, None)):
        found = Planner(machine, search=search).plan(case.kernel)
        lowered = lower_case(case, found.schedule, machine, instructions)
        np.testing.assert_array_equal(lowered.run(), case.expected)
        kernels = np.zeros(lowered.program.size, np.int64)
        report = check_races(lowered.program, kernels)
        assert report.complete and not report.races and not report.unwritten
        program = tile(case.kernel, found.schedule, machine)
        (output,) = run(program, case.operands, machine, interleave=seed).values()
        np.testing.assert_array_equal(output, case.expected)
        assert time_program(lowered.program, kernels).cycles >= found.granule_bound


def depths(seed: int, instructions: InstructionSet) -> tuple[int, int, int]:
    """Cycles of all computes of a whole layer's words, those that the streams imply, and pixels."""
    case = sparse_case(seed, 0.3)
    lowered = lower_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, instructions)
    total = 0
    for group in lowered.program.groups:
        if group.instruction.mnemonic == "sparse_conv":
            columns = group.columns
            total += int((columns["depth"] * columns["n"] * columns["oh"] * columns["ow"]).sum())
    (streams,) = [array for array in case.operands.values() if array.ndim == 3]
    shape = case.expected.shape
    return total, sparse.slowest(streams, 16), int(np.prod(shape)) // shape[1]


@pytest.mark.parametrize("seed", range(3))
def test_time_is_that_of_the_slowest_element(seed: int, instructions: InstructionSet) -> None:
    total, slowest, pixels = depths(seed, instructions)
    # Tiles that end together wait for one another: never faster than the whole layer at once.
    assert slowest * pixels <= total <= 1.6 * slowest * pixels


@pytest.mark.parametrize("word", [0, 20])
def test_streams_that_no_weights_have_are_refused(word: int, instructions: InstructionSet) -> None:
    case = sparse_case(3, 0.5)
    lowered = lower_case(case, Planner(MACHINE).plan(case.kernel).schedule, MACHINE, instructions)
    (streams,) = [array for array in case.operands.values() if array.ndim == 3]
    at = lowered.memory.tobytes().index(np.ascontiguousarray(streams).tobytes())
    lowered.memory[at + 2 * word : at + 2 * word + 2] = 255
    with pytest.raises(TilewrightError) as caught:
        lowered.run()
    assert caught.value.problems[0].code == "simulate-stream"


def test_outputs_that_span_tiles_of_blocks_fit_their_memory() -> None:
    """Every arrangement that the space holds valid can be built: all channels of a block count."""
    random = np.random.default_rng(0)
    weights = random.integers(-9, 10, (256, 256, 3, 3)).astype(np.int16)
    weights[random.random(weights.shape) < 0.5] = 0
    streams = sparse.encode(weights, 64, 16)
    build = KernelBuilder(0)
    x, s = build.image(1, 256, 14, 14), build.operand(streams.shape)
    cycles = sparse.stream_cycles_of(streams, 16)
    how: dict[str, Any] = {"channels": 256, "kernel": (3, 3)}
    how["stream_cycles"] = (cycles.alone, cycles.each, cycles.lead)
    sums = build.op("sparse_product", x, s, pads=(1, 1, 1, 1), **how)
    kernel = build.plan_only(build.op("requantise", sums, result=(16, 8)))
    space = build_space(kernel, MACHINE, MACHINE.primitive("sparse_conv"))
    built = 0
    for nest in nests_of(space):
        for arrangement in arrangements(space, nest) if nest.grown else ():
            for row in np.flatnonzero(arrangement.valid)[::3][:12]:
                assert tile(kernel, schedule_of(space, arrangement, int(row)), MACHINE, check=False)
                built += 1
    assert built > 10
