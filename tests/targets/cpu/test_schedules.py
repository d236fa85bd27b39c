"""What a kernel computes does not depend on its schedule."""

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker
from tests.targets.cpu.primitive_cases.convolutions import convolution

from tilewright.graph.kernels import kernel_of
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.planning.planner import choose_primitive, schedules

SHAPES = {
    "padded": ((1, 72, 9, 13), 21, (3, 3), {"pads": (1, 1, 1, 1), "strides": (1, 2)}),
    "inside": ((2, 136, 7, 3), 40, (1, 1), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_every_schedule_computes_the_same(name: str) -> None:
    image, channels, kernel, attributes = SHAPES[name]

    def make(count: int) -> tuple[Maker, list[SSAValue]]:
        m = Maker(PLAIN, seed=5)
        return m, [convolution(m, image, channels, kernel, **attributes) for _ in range(count)]

    probe, values = make(1)
    probe.finish(*values)
    stage = kernel_of(probe.kernels[0], value_names(probe.module))
    space = list(schedules(stage, PLAIN, choose_primitive(stage, PLAIN)))
    chosen = _varied(space, 10)
    m, values = make(len(chosen))
    m.schedules = {f"k{number}": schedule for number, schedule in enumerate(chosen)}
    m.finish(*values)
    expected, found = m.expected(), m.run()
    for number, schedule in enumerate(chosen):
        array = expected[f"out{number}"]
        np.testing.assert_allclose(
            found[f"out{number}"], array, atol=1e-5 * np.abs(array).max(), err_msg=str(schedule)
        )


def _varied(space: list[Schedule], count: int) -> list[Schedule]:
    """Schedules from all over the space: with split reductions, blocks of rows, all orders."""
    random = np.random.default_rng(1)
    chosen = [space[i] for i in random.choice(len(space), count, replace=False)]
    split = [s for s in space if dict(s.levels[-1].tile)["ci"] < 72]
    rows = [s for s in space if len(s.levels) > 1]
    assert split and (rows or len(space[0].levels) == 1)
    return [*chosen, split[0], split[-1], *rows[:1], *rows[-1:]]
