"""Values as operations of ``arith``: what these compute is what the expression says."""

import re

import numpy as np
import pytest
from tests.targets.ascend.hivm_interpreter import INDICES

from tilewright.codegen.nest.value import Value, greatest, least, of, variable
from tilewright.targets.ascend.hivm.views import Text

A, B = variable("%a"), variable("%b")


@pytest.mark.parametrize(
    "value",
    [7, A, A * 3 - B, 5 - A, B - A * 4 + 9, least(16, 40 - A), greatest(0, A - B * 2) + 3,
     (A * 2 - B) // 3, (A * 3 + 1) % 5 - 2, least(A, greatest(B, 4)) * 6 - 11],
    ids=str,
)  # fmt: skip
def test_operations_compute_the_expression(value: Value) -> None:
    body = Text()
    name = body.index(value)
    random = np.random.default_rng(3)
    for a, b in random.integers(0, 50, (20, 2)).tolist():
        known = {"%a": a, "%b": b}
        for definition, constant in body.constants.items():
            known[constant] = int(definition.split()[1])
        for line in body.lines:
            result, operation, left, right = re.findall(r"%\w+|arith\.\w+", line)
            known[result] = INDICES[operation](known[left], known[right])
        text = re.sub(r"%(?=[ab]_)", "", of(value).python)
        expected = eval(text, {"min": min, "max": max}, {"a_": a, "b_": b})
        assert known[name] == expected
