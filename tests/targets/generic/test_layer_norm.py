"""Layer normalisation and transposes on described machines: words against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.targets.generic.kernel_cases import Case, KernelBuilder, lower_case
from tests.targets.generic.test_families import Chip

from tilewright.errors import TilewrightError
from tilewright.ir import f16
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.targets.generic.functions import bits_of
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races

FILE = Path(__file__).parents[3] / "examples" / "machines" / "five-buffers.toml"
FLOATS = load_machine(FILE)
FIXED = {"element": "fixed16", "accumulator": "fixed32"}
ROWS, WIDTH = 5, 70


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("centred", [False, True])
def test_one_instruction(others: int, centred: bool) -> None:
    random = np.random.default_rng(4)
    x = random.normal(1.0, 2.0, (ROWS, WIDTH)).astype(np.float16)
    weight, bias = (random.normal(0, 1, WIDTH).astype(np.float16) for _ in range(2))
    chip = Chip(derive(FLOATS))
    chip.local = {"ub": x, "ub:1024": weight, "ub:2048": bias}
    chip.run(
        f"layer-norm d0={ROWS}, axis={WIDTH}, epsilon={bits_of(1e-3)}, centred={int(centred)}, "
        f"input.d0={2 * WIDTH}, input.axis=2, others={others}, weight.address=1024, "
        "weight.axis=2, bias.address=2048, bias.axis=2, "
        f"output.address=4096, output.d0={2 * WIDTH}, output.axis=2"
    )
    found = chip.read("ub", 4096, (ROWS, WIDTH), np.float16)
    wide = x.astype(np.float64)
    if centred:
        wide -= wide.mean(axis=1, keepdims=True)
    wide /= np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-3)
    wanted = wide * (weight if others else 1) + (bias if others == 2 else 0)
    # Rounded to float32 and to float16: little more than half a unit in the last place of float16.
    assert (np.abs(found - wanted) <= 2.0**-11 * np.abs(wanted) * 1.001 + 2.0**-25).all()


def layer_norm_case(seed: int) -> Case:
    build = KernelBuilder(seed, fixed=False, element=f16)
    pick = build.random
    width = int(pick.integers(2, 900))
    x = build.operand((*pick.integers(1, 9, int(pick.integers(0, 3))).tolist(), width))
    others = [build.operand((width,)) for _ in range(seed % 3)]
    settings: dict[str, Any] = {"epsilon": 1e-5, "centred": bool(seed % 2)}
    return build.finish(
        build.op("cast", build.op("layer_norm", x, *others, **settings), to="float16")
    )


def transpose_case(seed: int, *, fixed: bool) -> Case:
    build = KernelBuilder(seed, fixed=fixed, element=f16)
    pick = build.random
    rank = int(pick.integers(2, 4))
    x = build.operand(tuple(pick.integers(2, 40, rank).tolist()))
    y = build.op("transpose", x, permutation=pick.permutation(rank).tolist(), result=(16, 8))
    return build.finish(y if fixed else build.op("cast", y, to="float16"))


def check_words(case: Case, *, fixed: bool = False) -> None:
    machine = FLOATS.with_values(FIXED) if fixed else FLOATS
    schedule = Planner(machine).plan(case.kernel).schedule
    lowered = lower_case(case, schedule, machine, derive(machine))
    np.testing.assert_array_equal(lowered.run(), case.expected)
    report = check_races(lowered.program, np.zeros(lowered.program.size, np.int64))
    assert report.complete and not report.races and not report.unwritten


@pytest.mark.parametrize("seed", range(6))
def test_layer_norm_in_tiles(seed: int) -> None:
    check_words(layer_norm_case(seed))


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_transposes_in_tiles(seed: int, fixed: bool) -> None:
    check_words(transpose_case(seed, fixed=fixed), fixed=fixed)


def test_integers_have_no_layer_norm() -> None:
    with pytest.raises(TilewrightError, match=r"isa-operation.*no instruction for layer_norm"):
        derive(FLOATS.with_values(FIXED)).for_compute("layer-norm", "layer_norm")


def test_a_transpose_is_no_step_behind_another_instruction() -> None:
    (mmad,) = [p for p in FLOATS.primitives if p.name == "mmad"]
    other = mmad.model_copy(update={"epilogue": (("transpose",),)})
    rest = tuple(p for p in FLOATS.primitives if p.name != "mmad")
    with pytest.raises(TilewrightError, match=r"isa-function.*lists transpose"):
        derive(FLOATS.model_copy(update={"primitives": (other, *rest)}))
