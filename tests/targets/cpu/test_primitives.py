"""Every primitive against the graph's meaning: odd sizes, remainders, pads, strides, groups.

All cases are kernels of one network, so that the C is built once for each vector width.
"""

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Array, Maker
from tests.targets.cpu.primitive_cases import CASES

from tilewright.codegen.c.compiler import FLAGS
from tilewright.targets.cpu.processors import this_processor

TOLERANCE = 1e-5
"""Of the largest element of an output."""

MACHINES = ["native", pytest.param("plain", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=MACHINES)
def results(request: pytest.FixtureRequest) -> tuple[dict[str, Array], dict[str, Array]]:
    """Outputs of all cases: by the graph's meaning, and by the C."""
    plain = request.param == "plain"
    m = Maker(PLAIN if plain else None, seed=7)
    values = [make(m) for make in CASES.values()]
    m.finish(*values)
    names = [f"out{number}" for number in range(len(values))]
    # The plain machine's package needs no flag for a processor; warnings are errors in both.
    expected, found = (
        m.expected(),
        m.run((*FLAGS, *(() if plain else this_processor().flags), "-Werror")),
    )
    by_case = dict(zip(CASES, names, strict=True))
    return (
        {case: expected[name] for case, name in by_case.items()},
        {case: found[name] for case, name in by_case.items()},
    )


@pytest.mark.slow_cases(6)
@pytest.mark.few(11)
@pytest.mark.parametrize("case", CASES)
def test_primitive_computes_what_the_graph_means(
    case: str, results: tuple[dict[str, Array], dict[str, Array]]
) -> None:
    expected, found = results[0][case], results[1][case]
    assert np.ptp(expected) > 0 or expected.size == 1
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found / scale, expected / scale, atol=TOLERANCE)
