"""Why a kernel is far from its bound: each cause is told from the others."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.runtime.manifest import KernelEntry
from tilewright.runtime.reasons import why_low


def machine(in_flight: int = 1, latency: int = 100) -> dict[str, Any]:
    one = {"bytes_per_cycle": 128.0, "latency": latency, "in_flight": in_flight}
    primitives = [
        {"name": "winograd_4", "approximate": True, "operations": ["winograd_conv"]},
        {"name": "conv_pieces", "approximate": True, "operations": ["piece_conv"]},
        {"name": "conv_pieces_3", "approximate": False, "operations": ["piece_conv"]},
        {"name": "conv"},
    ]
    moves = [{"name": "load", **one}, {"name": "store", **one}]
    return {"moves": moves, "primitives": primitives}


def reason(**changed: Any) -> str:
    values: dict[str, Any] = {
        "taken": 10_000.0,
        "physical": 5_000.0,
        "granule": 5_000.0,
        "moved_bytes": 1_000,
        "simulated": True,
    }
    described = machine(changed.pop("in_flight", 1))
    values |= changed
    entry = KernelEntry(
        name="k0",
        nodes=(),
        engine="accelerator",
        schedule=values.pop("schedule", ""),
        physical_bound=values.pop("physical"),
        granule_bound=values.pop("granule"),
        blocks=values.pop("blocks", ""),
        block_cycles=values.pop("block_cycles", 0),
    )
    return why_low(described, entry, **values)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"granule": 10_000.0}, ["rounding of sizes costs 100 %"]),
        ({"taken": 5_600.0}, ["too short", "600 cycles"]),
        ({"moved_bytes": 128 * 6_000}, ["60 % of the time", "waits for the 100 cycles"]),
        ({"moved_bytes": 128 * 6_000, "in_flight": 4}, ["60 % of the time", "edges"]),
        ({}, ["small tiles", "5,000 cycles"]),
        ({"simulated": False}, ["other programs"]),
        ({"simulated": False, "schedule": "winograd_4 [..]"}, ["other programs", "transforms"]),
        ({"simulated": False, "schedule": "conv_pieces [..]"}, ["other programs", "splitting"]),
        ({"simulated": False, "schedule": "conv_pieces_3 [..]"}, ["other programs", "splitting"]),
        ({"blocks": "y moves in 30", "block_cycles": 3_000}, ["small blocks: y moves in 30"]),
        ({"blocks": "y moves in 20", "block_cycles": 2_000}, ["small tiles", "5,000 cycles"]),
        ({"taken": 5_600.0, "blocks": "y", "block_cycles": 600}, ["too short"]),
        ({"granule": 8_000.0}, ["rounding of sizes costs 60 %", "small tiles"]),
        ({"physical": 8_900.0, "granule": 9_450.0}, ["rounding", "too short", "550 cycles"]),
        ({"physical": 880.0, "granule": 920.0, "taken": 960.0}, []),
    ],
)
def test_cause_is_named(changed: dict[str, Any], words: list[str]) -> None:
    found = reason(**changed)
    assert all(word in found for word in words)
    assert bool(found) == bool(words)


def test_little_of_each_is_told() -> None:
    found = reason(physical=8_990.0, granule=9_510.0)
    assert "rounding" in found


def test_near_or_unknown_bounds_need_no_reason() -> None:
    assert reason(physical=9_000.0) == ""
    assert reason(physical=None) == ""
    assert reason(taken=None) == ""
