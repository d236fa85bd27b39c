"""Every number of a machine file at its extremes: refused with a code, or planned."""

import copy
import math
import tomllib
from pathlib import Path

import pytest

from tests.targets.generic.kernel_cases import KernelBuilder
from tilewright.errors import TilewrightError
from tilewright.machine.forms import machine_of
from tilewright.machine.load import load_machine, to_toml
from tilewright.planning import Planner
from tilewright.targets.base import find_target

EXTREMES = (0, 1, -1, 1e-320, 2**31, 2**40, 2**63, math.nan, math.inf)
CODES = ("machine-", "plan-", "expression-", "isa-", "program-", "simulate-", "lower-", "tile-")
EXAMPLE = Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml"


def example() -> dict:
    """The example with one primitive, and every numeric key set somewhere."""
    data = load_machine(EXAMPLE).to_json()
    data["primitives"] = data["primitives"][:1]
    data["memories"][1] |= {"banks": 2, "reserved": 64, "bytes_per_cycle": 64.0}
    data["moves"][0] |= {"efficiency": [[64, 0.5], [256, 1.0]]}
    data["moves"][1] |= {"transaction": 8}
    data["primitives"][0] |= {
        "limits": {"co": 64},
        "extents": {"ci": [1, 512]},
        "reserved": {"feature": 64},
    }
    return data


def numbers(value, place=()):
    """The places of all numbers in plain data."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(inner, (*place, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place


PLACES = list(numbers(example()))


def small_kernel():
    build = KernelBuilder(0)
    x = build.image(1, 8, 2, 2)
    weight = build.operand((8, 8, 1, 1), layout="OHWI")
    return build.plan_only(build.op("conv", x, weight))


def test_to_toml_keeps_every_number():
    machine = machine_of(example() | {"own": {"cpu": {"cache_costs": {"usable": 0.5}}}})
    assert tomllib.loads(to_toml(machine))["own"]["cpu"]["cache_costs"] == {"usable": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_extreme_values_are_refused_or_planned(place):
    kernel, planned = small_kernel(), 0
    for value in EXTREMES:
        data = copy.deepcopy(example())
        part = data
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
        try:
            machine = machine_of(data)
            target = find_target("generic")
            target.check_machine(machine)
            found = Planner(machine, timer=target.timer(machine)).plan(kernel)
        except TilewrightError as error:
            assert error.problems[0].code.startswith(CODES), f"{value}: {error}"
        else:
            planned += 1
            assert found.predicted_cycles >= 0, value
    assert planned < len(EXTREMES), "nan and -1 are no values of any key"
