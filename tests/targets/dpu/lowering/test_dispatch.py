"""The order of an interleaved chain: the same on every engine, and no slower."""

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.dpu.lowering.lowered_cases import image, lower_case
from tests.targets.dpu.lowering.test_lowered_chains import CHAINS, chain, crowded
from tests.targets.generic.kernel_cases import KernelBuilder

from tilewright.errors import TilewrightError
from tilewright.graph.operation import Operation
from tilewright.ir import UnitAttr
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.targets.dpu.core import ZU2
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.timer import timer
from tilewright.targets.dpu.timing import check_program, time_program

NAMES = ("conv-pool", "conv-add", "inverted-residual")


def programs(name: str):
    """The operations of a chain as they are dispatched, and command by command."""
    case, machine = chain(CHAINS[name], 31), crowded(ZU2, 8)
    (after,) = lower_case(case, ZU2, machine).segments.programs
    (before,) = lower_case(case, ZU2, machine, interleaved=False).segments.programs
    return before, after


@pytest.mark.parametrize("name", NAMES)
def test_engines_keep_their_order_and_nothing_takes_longer(name: str) -> None:
    before, after = programs(name)
    assert [op.mnemonic for op in before] != [op.mnemonic for op in after]

    def by_engine(operations):
        tokens = ("take", "put")
        rows = [
            (op.engine, op.mnemonic, [v for k, v in op.fields.items() if k not in tokens])
            for op in operations
        ]
        return [[row for row in rows if row[0] == engine] for engine in range(4)]

    assert by_engine(before) == by_engine(after)
    assert check_program(ZU2, after).race_free
    first, second = time_program(ZU2, before), time_program(ZU2, after)
    assert second.cycles <= first.cycles * 1.01
    assert second.main_bytes == first.main_bytes


@pytest.mark.slow
def test_prices_of_chains_are_near_what_the_words_take() -> None:
    machine = machine_of(ZU2)
    simulated = timer(ZU2, machine)
    errors: list[float] = []
    for name in CHAINS:
        case = chain(CHAINS[name], 40)
        try:
            found = Planner(machine).plan(case.kernel)
        except TilewrightError:
            continue
        errors.append(abs(found.predicted_cycles / simulated(case.kernel, found.schedule) - 1))
    assert len(errors) > 8
    assert np.mean(errors) < 0.1 and max(errors) < 0.25


def inverted(channels: int, size: int, inner: int, k: int, stride: int, outputs: int) -> Kernel:
    """A 1x1 convolution, a depthwise one and, if there are ``outputs``, a 1x1 one, as a chain."""
    build = KernelBuilder(1)
    layers = [((inner, channels, 1, 1), 1), ((inner, 1, k, k), inner), ((outputs, inner, 1, 1), 1)]
    value = image(build, 1, channels, size, size)
    for number, (shape, group) in enumerate(layers[: 3 if outputs else 2]):
        weight = build.operand(shape, 9, 8, "HWIO" if group > 1 else "OHWI")
        step = stride if group > 1 else 1
        pads = (shape[2] // 2,) * 4
        value = build.op("conv", value, weight, group=group, strides=(step, step), pads=pads)
        first = value.owner
        assert isinstance(first, Operation)
        if number:
            first.begins = UnitAttr()
        value = build.op("requantise", value, result=(8, 4))
    return build.finish(value).kernel


@pytest.mark.parametrize(
    "shape",
    but_fast(
        [
            *((32, 28, 192, 3, 2, 64), (24, 56, 144, 3, 2, 32), (96, 14, 576, 3, 1, 96)),
            *((24, 56, 72, 5, 2, 40), (112, 14, 672, 5, 1, 112)),
            *((96, 14, 576, 3, 1, 0), (96, 14, 576, 3, 2, 0)),
        ],
        [(32, 28, 192, 3, 2, 64), (96, 14, 576, 3, 2, 0)],
    ),
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_prices_of_chains_with_depthwise_know_of_rows(shape: tuple[int, ...]) -> None:
    """Blocks of MobileNet-v2 and MnasNet: a convolution's next tile begins where the depthwise one
    has read, not behind it; and where a circular buffer ends, a compute is an instruction more."""
    machine, kernel = machine_of(ZU2), inverted(*shape)
    planned = Planner(machine).plan(kernel)
    assert abs(planned.predicted_cycles / timer(ZU2, machine)(kernel, planned.schedule) - 1) < 0.03
