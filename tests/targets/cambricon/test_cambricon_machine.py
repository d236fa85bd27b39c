"""The descriptions of ACC-C's configurations against the published figures."""

from __future__ import annotations

from tilewright.targets.cambricon.machine import CONFIGURATIONS, MACHINE, machine


def test_sizes_and_bandwidth_are_those_published() -> None:
    sizes = [
        (size.name, m.memory("msm").bytes, m.memory("vsm").bytes, size.lanes)
        for size in CONFIGURATIONS
        for m in (machine(size),)
    ]
    assert sizes == [
        ("cambricon", 768 * 1024, 64 * 1024, 32),
        ("cambricon-s", 32 * 1024, 16 * 1024, 16),
        ("cambricon-m", 128 * 1024, 128 * 1024, 8),
    ]
    for move in MACHINE.moves:
        assert move.bytes_per_cycle * MACHINE.clock_hz == 128e9
        assert move.latency / MACHINE.clock_hz == 100e-9
    assert all(engine.queue == 2 for engine in MACHINE.engines)


def test_matrix_unit_has_a_multiplier_for_each_pair_of_lanes() -> None:
    for size in CONFIGURATIONS:
        product = machine(size).primitive("conv")
        assert product.multiples == {"co": size.lanes, "ci": size.lanes}
        assert product.peak.endswith(f"/{size.lanes**2}")
