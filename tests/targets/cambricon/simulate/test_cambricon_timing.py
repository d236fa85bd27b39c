"""Cycles of small programs, each computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.simulate.running import R, number

from tilewright.targets.cambricon.formats import UNITS
from tilewright.targets.cambricon.machine import MACHINE, MEDIUM, machine
from tilewright.targets.cambricon.simulate import Result, run
from tilewright.targets.cambricon.statements import Statement, assemble_statements, statement

LATENCY, BANDWIDTH, WORD, REFILL = 100, 128, 8, 4


def simulate(program: list[Statement], **values: float) -> Result:
    varied = MACHINE.with_values(values) if values else MACHINE
    main = np.ones(1 << 20, np.uint8)
    return run(assemble_statements(program), varied, main, trace=True)


def spans(result: Result) -> list[tuple[str, float, float]]:
    """Unit, start and end of each event."""
    rows = zip(result.events[:, 1].tolist(), result.times.tolist(), strict=True)
    return [(UNITS[unit], start, end) for unit, (start, end) in rows]


def loaded(*more: Statement) -> list[Statement]:
    """Both scratchpads filled with 4096 elements; what follows starts when that is done.

    $R1 = 4096 elements, $R2 = 64, $R3 = 32, $R4 = 16384 (free in VSM), $R5 = 1.
    """
    sizes = [number(R[i], v) for i, v in enumerate((4096, 64, 32, 16384, 1), 1)]
    return [
        *sizes,
        statement("VLOAD", R[0], R[1], R[0], 0),
        statement("MLOAD", R[0], R[1], R[0], 0),
        statement("VMOVE.barrier", R[0], R[0], R[0]),
        *more,
    ]


def after(program: list[Statement], **values: float) -> list[tuple[str, float, float]]:
    """Spans of what follows ``loaded``, from the first start on."""
    found = spans(simulate(loaded(*program), **values))[2:]
    begin = found[0][1]
    return [(unit, start - begin, end - begin) for unit, start, end in found]


def test_scalar_instructions_take_a_cycle_each() -> None:
    assert simulate([number(R[1], 1)] * 7).cycles == 7


def test_a_loop_pays_for_the_branch_that_ends_it() -> None:
    program = [
        number(R[1], 10),
        Statement(label="loop"),
        statement("SSUB", R[1], R[1], 1),
        statement("CB", R[1], "loop"),
    ]
    assert simulate(program).cycles == 1 + 10 * 2 + REFILL


@pytest.mark.parametrize(
    ("branch", "cycles"),
    [
        (statement("CB", R[1], 1), 1),  # forwards, not taken
        (statement("CB", R[2], 1), 1 + REFILL),  # forwards, taken
        (statement("J", 1), 1),
        (statement("J", R[2]), 1 + REFILL),
    ],
    ids=["not taken", "taken", "jump", "jump by register"],
)
def test_branches(branch: Statement, cycles: int) -> None:
    assert simulate([number(R[1], 0), number(R[2], 1), branch]).cycles == 2 + cycles


def test_a_load_takes_latency_and_bytes_and_brings_the_words() -> None:
    result = simulate([number(R[1], 640), statement("VLOAD", R[0], R[1], R[0], 0)])
    size = 640 * 2 + 2 * WORD
    assert result.bytes["vload"] == size
    assert spans(result) == [("vector_dma", 1, 1 + LATENCY + size / BANDWIDTH)]
    assert result.cycles == 1 + LATENCY + size / BANDWIDTH


def test_transfers_share_main_memory() -> None:
    """The second begins its data a cycle later, then both have half; the rest is alone."""
    program = [
        number(R[1], 6400),
        number(R[2], 3200),
        statement("VLOAD", R[0], R[1], R[0], 0),
        statement("MLOAD", R[0], R[2], R[0], 0),
    ]
    first, second = 12800 + 3 * WORD, 6400 + WORD
    half_until = 3 + LATENCY + second / (BANDWIDTH / 2)
    rest = first - BANDWIDTH - second
    assert spans(simulate(program)) == [
        ("vector_dma", 2, pytest.approx(half_until + rest / BANDWIDTH, abs=1e-9)),
        ("matrix_dma", 3, half_until),
    ]


def test_a_slower_path_leaves_its_rest_to_the_other() -> None:
    program = [
        number(R[1], 6400),
        statement("VLOAD", R[0], R[1], R[0], 0),
        statement("MLOAD", R[0], R[1], R[0], 0),
    ]
    found = spans(simulate(program, **{"move.vload.bytes_per_cycle": 32}))
    size = 12800 + 2 * WORD
    assert found[0][2] == 1 + LATENCY + size / 32
    assert found[1][2] == pytest.approx(2 + LATENCY + (12800 + WORD) / 96)


def test_transfers_of_one_engine_follow_one_another_with_their_latency() -> None:
    load = statement("VLOAD", R[0], R[1], R[0], 0)
    found = spans(simulate([number(R[1], 640), load, load]))
    assert found[1][1] == found[0][2]
    assert found[1][2] == found[0][2] + LATENCY + (1280 + WORD) / BANDWIDTH


def test_products_take_a_cycle_for_each_32_by_32() -> None:
    program = [
        statement("MMV", R[4], R[2], R[0], R[0], R[2]),  # 64 x 64
        statement("VMM", R[4], R[3], R[0], R[0], R[2]),  # 32 x 64
        statement("OP", R[1], R[2], R[2], R[0], R[3]),  # 64 x 32
        statement("MMV", R[4], R[5], R[0], R[0], R[5]),  # 1 x 1
    ]
    found = after(program)
    assert found == [
        ("matrix", 0, 4),
        ("matrix", 4, 6),
        ("matrix", 6, 8),
        ("matrix", 8, 9),
    ]


def test_variants_have_their_own_lanes() -> None:
    main = np.ones(1 << 16, np.uint8)
    program = loaded(
        statement("MMV", R[4], R[2], R[0], R[0], R[2]), statement("VAV", R[4], R[2], R[0], R[0])
    )
    found = spans(run(assemble_statements(program), machine(MEDIUM), main, trace=True))
    assert [end - start for _, start, end in found[2:]] == [64, 8]


@pytest.mark.parametrize(
    ("text", "registers", "cycles"),
    [
        ("VAV", (4, 1, 0, 0), 128),
        ("VAV.wide.wide0", (4, 2, 0, 0), 2),
        ("VAV.long", (4, 2, 0, 0), 4),
        ("VMOVE", (4, 3, 0), 1),
        ("VAS", (4, 1, 0, 5), 128),
        ("RV", (4, 1), 128),
        ("MAM", (0, 1, 0, 0), 4),
        ("MMS", (0, 5, 0, 0), 1),
        ("MMOVE", (0, 1, 0), 4),
    ],
)
def test_elements_take_a_cycle_for_each_row_of_lanes(
    text: str, registers: tuple[int, ...], cycles: int
) -> None:
    found = after([statement(text, *(R[i] for i in registers))])
    assert found[0][2] == cycles


def test_units_run_side_by_side_unless_one_needs_the_others_bytes() -> None:
    product = statement("MMV", R[4], R[1], R[0], R[0], R[5])  # 4096 x 1: 128 cycles
    other = statement("VAV", R[2], R[3], R[0], R[0])
    needs = statement("VAV", R[2], R[3], R[4], R[4])
    reads = statement("VAV", R[0], R[3], R[1], R[1])  # writes what the product reads
    assert after([product, other])[1] == ("vector", 0, 1)  # both waited in the queue
    assert after([product, needs])[1] == ("vector", 128, 129)
    assert after([product, reads])[1] == ("vector", 128, 129)


def test_the_queue_starts_in_order_and_holds_two() -> None:
    """The second product waits for the unit, the sum behind it too; scalars stop at the fourth."""
    product = statement("MMV", R[4], R[1], R[0], R[0], R[5])  # 128 cycles
    other = statement("VAV", R[2], R[3], R[0], R[0])
    found = after([product, product, other, other])
    assert found == [
        ("matrix", 0, 128),
        ("matrix", 128, 256),
        ("vector", 128, 129),
        ("vector", 129, 130),
    ]
    # Issued at 0, 1 and 2; the fourth enters when the second has started, at 128.
    late = after([product, product, other, other, statement("SLOAD", R[6], R[0], 0)])
    assert late[-1][1] == 129
    program = [product, product, other, number(R[6], 0), number(R[6], 0)]
    assert simulate(loaded(*program)).cycles == simulate(loaded(*program[:3])).cycles


def test_a_register_is_awaited_where_it_is_read() -> None:
    dot = statement("VDOT", R[6], R[1], R[0], R[0])  # 128 cycles
    free = statement("VMOVE", R[4], R[3], R[0])
    needs = statement("VAS", R[4], R[3], R[0], R[6])
    found = after([dot, free])
    assert found[1] == ("vector", 128, 129)
    load = statement("SLOAD", R[7], R[0], 0)
    unneeded = after([dot, load])
    assert unneeded[1] == ("scalar", 0, LATENCY + 4 / BANDWIDTH)
    used = after([dot, statement("SADD", R[7], R[6], 1), load])
    assert used[1][1] == 129
    assert after([dot, needs])[1] == ("vector", 128, 129)


def test_scalar_loads_wait_for_stores_of_their_bytes() -> None:
    store = statement("VSTORE", R[0], R[1], R[4], 0)
    near, far = (statement("SLOAD", R[6], R[4], offset) for offset in (64, 65536))
    found = after([store, far])
    assert found[1][1] == 0
    found = after([store, near])
    assert found[1][1] == found[0][2]


def test_a_barrier_waits_for_everything() -> None:
    product = statement("MMV", R[4], R[1], R[0], R[0], R[5])  # 128 cycles
    other = statement("VAV", R[2], R[3], R[0], R[0])
    found = after([product, statement("MMV.barrier", R[4], R[1], R[0], R[0], R[5]), other])
    assert found == [("matrix", 0, 128), ("vector", 128, 129)]


def test_time_goes_on_between_runs_and_sums_up_by_kernel() -> None:
    from tilewright.targets.cambricon.simulate import Simulator

    program = assemble_statements(
        loaded(
            statement("MMV", R[4], R[1], R[0], R[0], R[5]),
            statement("VAV", R[2], R[3], R[0], R[0]),
        )
    )
    main = np.ones(1 << 16, np.uint8)
    kernels = np.array([0] * 8 + [1, 2])
    whole = Simulator(program, MACHINE, main, kernels=kernels)
    whole.run()
    parts = Simulator(program, MACHINE, main, kernels=kernels)
    parts.run(0, 8)
    parts.run(8, 9)
    parts.run(9)
    for found in (whole.result(), parts.result()):
        assert found.cycles == whole.result().cycles
        assert found.kernel_end[1] - found.kernel_start[1] == 128
        assert found.kernel_busy[:, UNITS.index("vector")].tolist() == [0, 0, 1]
        assert found.kernel_bytes.sum() == found.main_bytes
        assert found.kernel_end.max() == found.cycles
