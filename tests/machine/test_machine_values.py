import numpy as np
import pytest

from tests.machine.machine_parts import small_machine
from tilewright.errors import TilewrightError
from tilewright.machine.values import value_tables


def test_values_of_every_kind():
    machine = small_machine()
    variant = machine.with_values(
        {
            "memory.near.bytes": 65536,
            "memory.near.bytes_per_cycle": "12.5",
            "memory.dram.bytes_per_cycle": "none",
            "move.in.in_flight": "8",
            "move.in.latency": np.int64(7),
            "engine.load.queue": 9,
            "clock_hz": "2e9",
            "primitive.conv.cycles": "co*ci",
            "primitive.conv.limits.co": 32,
            "primitive.conv.multiples.ci": 4,
            "issue_cycles": "0",
            "primitive.conv.peak": "5",
            "synchronisation": "none",
        }
    )
    assert variant.memory("near").bytes == 65536
    assert variant.memory("near").bytes_per_cycle == 12.5
    assert variant.memory("dram").bytes_per_cycle is None
    assert variant.moves[0].in_flight == 8 and variant.moves[0].latency == 7
    assert variant.engine("load").queue == 9
    assert variant.clock_hz == 2e9 and variant.issue_cycles == 0
    assert variant.primitive("conv").cycles == "co*ci"
    assert variant.primitive("conv").limits == {"co": 32}
    assert variant.primitive("conv").multiples == {"co": 8, "ci": 4}
    assert variant.primitive("conv").peak == "5"
    assert variant.synchronisation.style == "none"
    assert machine == small_machine()


def test_every_key_takes_its_own_value():
    machine = small_machine()
    data = machine.to_json()
    for key in value_tables(data):
        parts = key.split(".")
        place = data
        if len(parts) > 1:
            field = {"memory": "memories"}.get(parts[0], parts[0] + "s")
            place = (
                data[parts[0]]
                if parts[0] == "synchronisation"
                else next(part for part in data[field] if part["name"] == parts[1])
            )
        for part in parts[2:-1]:
            place = place[part]
        value = place[parts[-1]]
        assert machine.with_values({key: value}) == machine, key
        if value is not None and not isinstance(value, dict):
            assert machine.with_values({key: str(value)}) == machine, key


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("memory.near.byte", "memory.near.bytes"),
        ("memory.neer.bytes", "memory.near.bytes"),
        ("clock", "clock_hz"),
        ("moves.in.latency", "move.in.latency"),
        ("primitive.conv.limit.co", "primitive.conv.limits.co"),
    ],
)
def test_unknown_keys_name_the_nearest(key, near):
    with pytest.raises(TilewrightError) as caught:
        small_machine().with_values({key: 1})
    (problem,) = caught.value.problems
    assert problem.code == "machine-key" and problem.where == key
    assert near in problem.help


@pytest.mark.parametrize("key", ["", ".", "name", "memories", "memory.near.name", "x.y.z.w.v"])
def test_what_is_not_a_value_is_an_unknown_key(key):
    with pytest.raises(TilewrightError) as caught:
        small_machine().with_values({key: 1})
    assert caught.value.problems[0].code == "machine-key"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"memory.near.bytes": -1}, "memory.near.bytes"),
        ({"memory.near.bytes": "64K"}, "memory.near.bytes"),
        ({"memory.near.bytes": 1.5}, "memory.near.bytes"),
        ({"memory.near.bytes": True}, "memory.near.bytes"),
        ({"memory.near.bytes": None}, "memory.near.bytes"),
        ({"engine.load.queue": "_"}, "engine.load.queue"),
        ({"clock_hz": "0"}, "clock_hz"),
        ({"clock_hz": float("nan")}, "clock_hz"),
        ({"element": "int3"}, "element"),
        ({"primitive.conv.cycles": "import os"}, "primitive.conv.cycles"),
        ({"primitive.conv.limits.c-o": 1}, "primitive.conv.limits"),
    ],
)
def test_impossible_values_are_refused_by_key(values, where):
    with pytest.raises(TilewrightError) as caught:
        small_machine().with_values(values)
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("machine-invalid", where)


def test_all_unknown_keys_are_reported():
    with pytest.raises(TilewrightError) as caught:
        small_machine().with_values({"a": 1, "b": 2})
    assert [problem.where for problem in caught.value.problems] == ["a", "b"]


@pytest.mark.parametrize("style_first", [True, False])
def test_a_style_and_its_ids_in_any_order(style_first):
    values = [("synchronisation", "flags"), ("synchronisation.ids", "8")]
    variant = small_machine().with_values(dict(values if style_first else values[::-1]))
    assert (variant.synchronisation.style, variant.synchronisation.ids) == ("flags", 8)


def test_a_style_without_its_ids_is_refused():
    with pytest.raises(TilewrightError, match=r"synchronisation\.ids"):
        small_machine().with_values({"synchronisation": "flags"})
