"""Bytes taken of memories and counters of traces, compared with counts byte by byte."""

import numpy as np
import pytest
from msgspec.structs import replace

from tilewright.codegen.program.buffers import KernelBuffer, Occupant, occupants_of, taken_bytes
from tilewright.codegen.program.counters import flow_rates


def occupants(seed: int) -> list[Occupant]:
    random = np.random.default_rng(seed)
    found: list[Occupant] = []
    for number in range(30):
        address, size, start, length = (int(v) for v in random.integers(0, 40, 4))
        memory = ("near", "far")[number % 2]
        name = f"t{number}"
        found.append(Occupant(memory, name, "input", address, size, start, start + length, ("k",)))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_taken_bytes_are_those_of_a_map_byte_by_byte(seed: int) -> None:
    given = occupants(seed)
    for memory, (times, levels) in taken_bytes(given).items():
        taken = np.zeros((80, 80), bool)  # Time by byte.
        for each in given:
            if each.memory == memory:
                begin, end = int(each.start), int(each.end)
                taken[begin:end, each.address : each.address + each.bytes] = True
        assert times == sorted(set(times)) and levels[-1] == 0
        for time in range(80):
            before = [level for at, level in zip(times, levels, strict=True) if at <= time]
            assert (before[-1] if before else 0) == taken[time].sum()


def test_what_stays_lives_from_its_first_kernel_to_its_last() -> None:
    result = KernelBuffer(tensor="y", role="output", memory="near", address=64, bytes=8, stays=True)
    tile = KernelBuffer(tensor="x", role="input", memory="near", address=0, bytes=4, slots=2)
    buffers = {"k0": (tile, result), "k1": (), "k2": (replace(result, role="input"),)}
    kernels = [("k0", 0.0, 10.0), ("k1", 9.0, 20.0), ("k2", 20.0, 25.0)]
    found = {each.tensor: each for each in occupants_of(kernels, buffers)}
    assert (found["y"].start, found["y"].end, found["y"].kernels) == (0.0, 25.0, ("k0", "k2"))
    assert (found["x"].start, found["x"].end, found["x"].bytes) == (0.0, 10.0, 8)
    assert taken_bytes(found.values())["near"] == ([0.0, 10.0, 25.0], [16, 8, 0])


@pytest.mark.parametrize("seed", range(6))
def test_rates_are_those_of_a_sum_cycle_by_cycle(seed: int) -> None:
    random = np.random.default_rng(seed)
    start = random.integers(0, 90, 50).astype(float)
    length = random.integers(0, 10, 50)
    amount = (length * random.integers(1, 5, 50)).astype(float)
    amount[length == 0] = 7.0  # Flows at once.
    cycles = np.zeros(100)
    for begin, count, total in zip(start.astype(int), length, amount, strict=True):
        cycles[begin : begin + max(count, 1)] += total / max(count, 1)
    edges = np.linspace(0.0, 100.0, 21)
    rates = flow_rates(start, start + length, amount, edges)
    assert rates == pytest.approx(cycles.reshape(20, 5).mean(1))
    assert (rates * np.diff(edges)).sum() == pytest.approx(amount.sum())
