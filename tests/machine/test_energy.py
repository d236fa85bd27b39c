"""Energy and area by a machine's figures."""

from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, load_machine
from tilewright.machine.energy import (
    area_of,
    energy_of,
    has_energy,
    leakage_pj,
    without_figures,
)
from tilewright.machine.load import to_toml

ROOT = Path(__file__).parents[2]
NPU = ROOT / "examples" / "machines" / "small-npu.toml"


def figured() -> Machine:
    return load_machine(NPU).with_values(
        {
            "memory.dram.read_pj": 100,
            "memory.dram.write_pj": 120,
            "memory.feature.write_pj": "0.5 + bytes / 65536",
            "move.load-feature.byte_pj": 2,
            "primitive.pool.tile_pj": "3 * c * oh",
            "engine.load.leakage_mw": 1.0,
            "leakage_mw": 4.0,
            "memory.feature.area_mm2": "bytes / 65536",
            "area_mm2": 2.0,
        }
    )


def test_parts_are_sums_of_reads_writes_moves_and_tiles() -> None:
    machine = figured()
    size = machine.memory("feature").bytes or 0
    tiles = {("pool", (("c", 4), ("oh", 5))): 7, ("conv", (("co", 4),)): 3}
    parts = energy_of(machine, {"load-feature": 1000, "store-result": 10}, tiles)
    engine = machine.primitive("pool").engine
    assert parts == {
        "dram": 1000 * 100 + 10 * 120,
        "feature": 1000 * (0.5 + size / 65536),
        "load-feature": 2000,
        engine: 7 * 3 * 4 * 5,
    }


def test_leakage_takes_as_long_as_the_run() -> None:
    machine = figured()
    # 5 mW for one second are 5 mJ.
    assert leakage_pj(machine, machine.clock_hz) == pytest.approx(5e9)
    assert leakage_pj(load_machine(NPU), 1e9) == 0


def test_areas_and_missing_figures_are_named() -> None:
    machine = figured()
    size = machine.memory("feature").bytes or 0
    assert area_of(machine) == {"feature": size / 65536, "rest": 2.0}
    missing = without_figures(machine)
    assert "primitive.conv.tile_pj" in missing and "primitive.pool.tile_pj" not in missing
    assert "memory.feature.write_pj" not in missing
    plain = load_machine(NPU)
    assert not has_energy(plain) and area_of(plain) == {}
    assert has_energy(machine)


def test_figures_survive_the_file() -> None:
    machine = figured()
    assert load_machine(to_toml(machine)) == machine


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("memory.feature.read_pj", "bits * 2", "there is no bits"),
        ("memory.feature.read_pj", "bytes +", ""),
        ("memory.feature.read_pj", "0 - bytes", "is negative"),
        ("memory.feature.read_pj", -1.0, ""),
        ("memory.dram.read_pj", "bytes / 2", "the memory has no bytes"),
        ("primitive.pool.tile_pj", "co * 2", ""),
        ("primitive.pool.tile_pj", "0 - c", "is negative"),
        ("move.load-feature.byte_pj", "many", ""),
        ("engine.load.leakage_mw", float("nan"), ""),
    ],
)
def test_what_is_no_figure_is_refused(key: str, value: object, reason: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        load_machine(NPU).with_values({key: value})
    (problem, *_) = caught.value.problems
    assert key in problem.where and reason in problem.reason
