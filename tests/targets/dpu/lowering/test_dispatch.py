"""The order of a chain's instructions: the same on every engine, and no slower."""

import numpy as np
import pytest
from tests.targets.dpu.lowering.lowered_cases import lower_case
from tests.targets.dpu.lowering.test_lowered_chains import CHAINS, chain, crowded

from tilewright.errors import TilewrightError
from tilewright.planning import plan
from tilewright.targets.dpu.core import ZU2
from tilewright.targets.dpu.lowering import network
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.timer import timer
from tilewright.targets.dpu.timing import check_program, time_program

NAMES = ("conv-pool", "conv-add", "inverted-residual")


def programs(name: str, patch: pytest.MonkeyPatch):
    """The operations of a chain as they are dispatched, and as the tile program has them."""
    case = chain(CHAINS[name], 31)
    machine = crowded(ZU2, 8)
    (after,) = lower_case(case, ZU2, machine).segments.programs
    patch.setattr(network, "dispatch_order", lambda core, statements: statements)
    (before,) = lower_case(case, ZU2, machine).segments.programs
    return before, after


@pytest.mark.parametrize("name", NAMES)
def test_engines_keep_their_order_and_nothing_takes_longer(name: str, monkeypatch) -> None:
    before, after = programs(name, monkeypatch)

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


def test_prices_of_chains_are_near_what_the_words_take() -> None:
    machine = machine_of(ZU2)
    simulated = timer(ZU2, machine)
    errors: list[float] = []
    for name in CHAINS:
        case = chain(CHAINS[name], 40)
        try:
            found = plan(case.kernel, machine)
        except TilewrightError:
            continue
        errors.append(abs(found.predicted_cycles / simulated(case.kernel, found.schedule) - 1))
    assert len(errors) > 8
    assert np.mean(errors) < 0.25
