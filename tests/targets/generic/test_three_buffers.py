"""The configurations of the DianNao family: table 5.3's sizes, and one network on all of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.graph.networks import by_hand, parameters
from tests.slow import but_fast
from tests.targets.generic.kernel_cases import CASES, lower_case, random_case

from tilewright.compiler import api as compiling
from tilewright.frontends import Imported
from tilewright.machine import Machine
from tilewright.planning import Planner
from tilewright.targets import cambricon_x, shidiannao
from tilewright.targets.base import find_target
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.target import InstructionTarget
from tilewright.targets.generic.timing import check_races

TARGETS: dict[str, InstructionTarget] = {
    target.name: target
    for target in (
        *(cambricon_x.TARGET, cambricon_x.MEDIUM, cambricon_x.LARGE),
        *(shidiannao.SMALL, shidiannao.TARGET, shidiannao.LARGE),
    )
}

# The thesis' table 5.3, in KB: NBin, NBout, SB.
SIZES = {
    "cambricon-x": (8, 8, 32),
    "cambricon-x-m": (64, 64, 128),
    "cambricon-x-l": (32, 32, 768),
    "shidiannao-s": (8, 8, 32),
    "shidiannao": (64, 64, 128),
    "shidiannao-l": (32, 32, 768),
}

# What a 3 x 3 convolution of 20 x 18 points, 24 -> 40 channels, takes by the published formulas.
CONVOLUTION = {
    "cambricon-x": 3 * 2 * 9 * 360,
    "cambricon-x-m": 5 * 3 * 9 * 360,
    "cambricon-x-l": 2 * 1 * 9 * 360,
    "shidiannao-s": 2 * 2 * 9 * 24 * 40,
    "shidiannao": 3 * 3 * 9 * 24 * 40,
    "shidiannao-l": 9 * 24 * 40,
}
# A fully connected layer, 100 -> 70.
CONNECTED = {
    "cambricon-x": 5 * 7,
    "cambricon-x-m": 9 * 13,
    "cambricon-x-l": 3 * 4,
    "shidiannao-s": 100,
    "shidiannao": 2 * 100,
    "shidiannao-l": 100,
}


def cycles(machine: Machine, operation: str, **dims: int) -> float:
    """What the first primitive that serves an operation takes."""
    from tilewright.machine import parse_expression

    one = next(p for p in machine.primitives if p.serves(operation, dims))
    return float(np.asarray(parse_expression(one.cycles).evaluate(dims)))


@pytest.mark.parametrize("name", TARGETS)
def test_sizes_and_cycles_are_those_published(name: str) -> None:
    machine = TARGETS[name].machine()
    held = tuple((machine.memory(m).bytes or 0) // 1024 for m in ("nbin", "nbout", "sb"))
    assert machine.name == name
    assert held == SIZES[name]
    image = cycles(machine, "conv", n=1, co=40, ci=24, kh=3, kw=3, oh=20, ow=18)
    assert image == CONVOLUTION[name]
    assert cycles(machine, "matmul", co=70, ci=100) == CONNECTED[name]


@pytest.mark.parametrize("name", TARGETS)
def test_entry_points_name_the_targets(name: str) -> None:
    found = find_target(name)
    assert found.name == name
    assert found.machine() == TARGETS[name].machine()


@pytest.mark.parametrize(
    "name",
    but_fast(TARGETS, ["shidiannao"]),
)
def test_a_network_matches_the_interpreter_bit_for_bit(name: str) -> None:
    """Every operator that runs on cambricon-x runs here; no two commands race."""
    module, weights = by_hand(parameters(7))
    made = compiling.compile(Imported(module, weights, "small", 17, "0" * 64), TARGETS[name])
    random, seen = np.random.default_rng(5), list[bytes]()
    for _ in range(2):
        image: NDArray[np.float32] = random.normal(0, 1, (2, 3, 12, 12)).astype(np.float32)
        outputs = made.run({"image": image}, check_races=True)
        check = made.check({"image": image}, outputs)
        assert check.equal and check.exact and check.mismatches == 0
        seen.append(outputs["y"].tobytes())
    assert seen[0] != seen[1]
    assert not [kernel.symbol for kernel in made.profile.kernels if kernel.on_host and kernel.nodes]
    listing = TARGETS[name].listing(made.directory / "program")
    words = (made.directory / "program" / "program.bin").read_bytes()
    assert TARGETS[name].assemble(listing, TARGETS[name].machine()) == words
    text = TARGETS[name].disassemble(words, TARGETS[name].machine())
    assert TARGETS[name].assemble(text, TARGETS[name].machine()) == words


@pytest.mark.parametrize("seed", range(len(CASES)))
@pytest.mark.parametrize("name", ["cambricon-x-m", "shidiannao-s"])
def test_kernels_compute_what_the_graph_means(name: str, seed: int) -> None:
    machine = TARGETS[name].machine()
    case = random_case(100 + seed)
    lowered = lower_case(
        case, Planner(machine).plan(case.kernel).schedule, machine, derive(machine)
    )
    np.testing.assert_array_equal(lowered.run(), case.expected)
    report = check_races(lowered.program, np.zeros(lowered.program.size, np.int64))
    assert report.complete and not report.races and not report.unwritten
