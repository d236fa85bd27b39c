"""The space: when sizes of last resort are tried, and that nothing in it overflows a memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.planning import planning_kernels as kernels
from tests.planning.event_reference import buffer_bytes
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.tilings import build_space
from tilewright.targets.cambricon_x.machine import MACHINE


def test_windows_are_cut_only_where_nothing_else_fits() -> None:
    kernel = kernels.conv(64, 64, 20, 7)
    space = build_space(kernel, MACHINE, MACHINE.primitive("conv"))
    assert set(space.size("kh")) == {7}
    small = kernels.variant(MACHINE, sb=8192)
    space = build_space(kernel, small, small.primitive("conv"))
    assert space.rows
    assert max(space.size("kh") * space.size("kw")) < 49
    assert all(space.slot_bytes(space.uses[1]) <= 8192)


def test_sizes_below_the_granule_are_a_last_resort() -> None:
    tiny = kernels.variant(MACHINE, nbin=32, sb=2048)
    space = build_space(kernels.conv(64, 64, 8, 1), tiny, tiny.primitive("conv"))
    assert set(space.size("ci")) == {16}
    tiny = kernels.variant(MACHINE, nbout=32)
    space = build_space(kernels.conv(64, 64, 8, 1), tiny, tiny.primitive("conv"))
    assert max(space.size("co")) <= 16
    with pytest.raises(TilewrightError, match=r"plan-capacity.*nbin 16 bytes"):
        build_space(kernels.conv(4, 4, 8), kernels.variant(MACHINE, nbin=16), MACHINE.primitives[0])


def test_the_kinds_of_tiles_are_all_tiles() -> None:
    space = build_space(kernels.conv(40, 72, 23, 3), MACHINE, MACHINE.primitive("conv"))
    space = space.take(np.arange(0, space.rows, 7))
    cells = cells_of(space)
    assert np.allclose(cells.sum(cells.count, space.rows), space.trips_of(list(space.extents)))
    for use in space.uses:
        # Sums of the boxes of all tiles, by kind and in all, agree.
        again = [d for d in space.extents if d not in use.operand.dims]
        whole = space.total(use) * space.trips_of(again)
        summed = cells.sum(cells.count * cells.boxes[use.name], space.rows)
        assert np.allclose(summed, whole)


def test_a_bound_on_rows_thins_the_space_and_is_reported() -> None:
    kernel = kernels.conv(64, 64, 60)
    primitive = MACHINE.primitive("conv")
    full, thin = (
        build_space(kernel, MACHINE, primitive),
        build_space(kernel, MACHINE, primitive, 60),
    )
    assert full.cuts == []
    assert thin.cuts == ["rows"]
    assert 0 < thin.rows <= 60 < full.rows


_KERNELS = st.one_of(
    st.builds(
        kernels.conv,
        st.integers(1, 40),
        st.integers(1, 40),
        st.integers(5, 18),
        st.sampled_from([1, 3, 5]),
        st.sampled_from([1, 2]),
        residual=st.booleans(),
    ),
    st.builds(kernels.dense, st.integers(1, 900), st.integers(1, 300), st.integers(1, 3)),
    st.builds(kernels.pool, st.integers(1, 40), st.integers(4, 18), st.just(3), st.just(2)),
    st.builds(kernels.depthwise, st.integers(1, 50), st.integers(4, 16)),
    st.builds(kernels.lrn, st.integers(1, 40), st.integers(1, 9)),
    st.builds(kernels.add, st.integers(1, 40), st.integers(1, 12)),
)


@pytest.mark.slow
@given(
    kernel=_KERNELS,
    nbin=st.integers(256, 4096),
    nbout=st.integers(256, 4096),
    sb=st.integers(2048, 16384),
    in_flight=st.sampled_from([1, 4]),
    one=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_schedules_never_exceed_a_memory(
    kernel: kernels.Kernel, nbin: int, nbout: int, sb: int, in_flight: int, one: bool
) -> None:
    machine = kernels.variant(MACHINE, nbin=nbin, nbout=nbout, sb=sb, in_flight=in_flight)
    if one:
        machine = kernels.unified(machine, "nbin", nbin + nbout + sb)
    try:
        found = Planner(machine).plan(kernel)
    except TilewrightError as error:
        assert error.problems[0].code == "plan-capacity"
        return
    for memory, used in buffer_bytes(kernel, found.schedule, machine).items():
        limit = machine.memory(memory).bytes
        assert limit is not None
        assert used <= limit
