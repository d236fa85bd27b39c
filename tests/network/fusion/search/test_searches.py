"""The three searches: against all selections, and on graphs made for them."""

from random import Random

import pytest

from tests.network.fusion.random_graphs import random_graph
from tests.network.fusion.search.integer_program import solved
from tests.network.fusion.search.problems import (
    best,
    contracted_runs,
    problem,
    random_problem,
    series_parallel,
)
from tilewright.network.fusion.search import SEARCHES, Cover
from tilewright.network.fusion.search.exact import exact
from tilewright.network.fusion.search.greedy import greedy
from tilewright.network.fusion.search.paths import paths


def costs(given: Cover) -> tuple[float, float, float]:
    """What exact, paths and greedy cost; their selections are valid, and in order."""
    found: list[float] = []
    for name in ("exact", "paths", "greedy"):
        selection = SEARCHES[name](given)
        assert contracted_runs(given, selection), name
        assert list(selection) == sorted(set(selection))
        assert SEARCHES[name](given) == selection
        found.append(given.cost(selection))
    return found[0], found[1], found[2]


def compared(given: Cover) -> tuple[bool, bool]:
    """Which of the steps exact <= paths <= greedy is strict."""
    one, two, three = costs(given)
    least, _ = best(given)
    assert one == pytest.approx(least, abs=1e-9)
    assert one <= two + 1e-9 and two <= three + 1e-9 and three <= given.cost(()) + 1e-9
    return one < two - 1e-9, two < three - 1e-9


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_series_parallel_graphs(count: int) -> None:
    random = Random(7)
    strict = [compared(random_problem(random, series_parallel(random))) for _ in range(count)]
    assert all(sum(column) > count / 50 for column in zip(*strict, strict=True))


def test_general_graphs() -> None:
    random = Random(8)
    strict = [compared(random_problem(random)) for _ in range(200)]
    assert all(sum(column) > 3 for column in zip(*strict, strict=True))


@pytest.mark.parametrize("most", [11, 24, pytest.param(40, marks=pytest.mark.slow)])
def test_an_integer_program_finds_nothing_better(most: int) -> None:
    """Also of graphs too large to try all selections of."""
    random = Random(most)
    for _ in range(30):
        given = random_problem(random, random_graph(random, most), groups=2 * most)
        least, selection = solved(given)
        assert contracted_runs(given, selection)
        assert given.cost(exact(given)) == pytest.approx(least, abs=1e-6)


TRAP = problem(
    # Five layers in a row; the fourth goes with the third or with the fifth (DNNVM, Fig. 8b).
    [(0, 1), (1, 2), (2, 3), (3, 4)],
    [10, 10, 10, 10, 10],
    {(2, 3): 18, (3, 4): 12},
)


def test_the_trap_of_figure_8b() -> None:
    assert greedy(TRAP) == (0,)
    assert paths(TRAP) == exact(TRAP) == (1,)
    assert costs(TRAP) == (42, 42, 48)


def test_a_sum_is_taken_by_the_better_branch() -> None:
    # A fork 0, branches 1-2 and 3, their sum 4.
    given = problem(
        [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4)],
        [1, 8, 8, 8, 8],
        {(1, 2): 12, (2, 4): 11, (3, 4): 10},
    )
    # With branch 2 the sum saves 5, but 1 and 2 can no longer be one; with branch 3, both go.
    assert paths(given) == exact(given) == (0, 2)
    assert costs(given)[0] == 1 + 12 + 10


def test_each_search_is_better_than_the_next() -> None:
    # Two sums, 3 of 1 and 2, and 6 of 4 and 5. The greedy search falls for 0 with 1. (1, 3, 4)
    # passes the first sum: no chain between barriers holds that.
    given = problem(
        [(0, 1), (1, 3), (2, 3), (3, 4), (4, 6), (5, 6)],
        [10, 10, 10, 10, 10, 10, 10],
        {(0, 1): 18, (1, 3): 12, (3, 4): 16, (1, 3, 4): 11, (4, 6): 14},
    )
    assert (exact(given), paths(given), greedy(given)) == ((3,), (1, 4), (0, 2))
    assert costs(given) == (51, 56, 64)


def test_of_equal_choices_the_longest_and_latest_group_is_taken() -> None:
    chain = problem([(0, 1), (1, 2)], [10, 10, 10], {(0, 1): 15, (1, 2): 15})
    assert exact(chain) == (1,)
    branches = problem([(0, 2), (1, 2)], [10, 10, 10], {(0, 2): 15, (1, 2): 15})
    assert exact(branches) == (1,)


def test_nothing_to_fuse() -> None:
    for given in (problem([], [], {}), problem([(0, 1)], [3, 4], {(0, 1): 7})):
        assert all(search(given) == () for search in SEARCHES.values())


def test_a_long_chain_takes_few_cuts() -> None:
    count = 300
    given = problem(
        [(n, n + 1) for n in range(count - 1)],
        [10] * count,
        {(n, n + 1): 12 + n % 3 for n in range(count - 1)},
    )
    assert given.cost(exact(given)) == given.cost(paths(given)) < given.cost(greedy(given)) + 1e-9
