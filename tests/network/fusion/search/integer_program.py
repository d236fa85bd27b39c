"""The searches' problem as an integer program, which a solver of others solves (HiGHS)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from tilewright.network.fusion.search import Cover, Selection


def solved(given: Cover) -> tuple[float, Selection]:
    """The least cost of all valid selections, and one that has it.

    There is a binary variable for each group, and a node is in one group at most.
    """
    groups = len(given.groups)
    if not groups:
        return given.cost(()), ()
    holding = np.zeros((len(given.alone), groups))
    for number, group in enumerate(given.groups):
        holding[list(group.vertices), number] = 1
    outcome = milp(
        np.array([-given.gain(number) for number in range(groups)]),
        constraints=LinearConstraint(holding, -np.inf, 1),
        bounds=Bounds(0, 1),
        integrality=np.ones(groups),
        options={"mip_rel_gap": 0},
    )
    assert outcome.success, outcome.message
    taken = tuple(number for number in range(groups) if outcome.x[number] > 0.5)
    return given.cost(taken), taken
