"""Vector kernels and attention on several cores: iterations of their loops as blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.targets.ascend.ascend_arrays import built

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.flags import synchronised
from tilewright.targets.ascend.kernels.attention import Heads, attention
from tilewright.targets.ascend.kernels.elementwise import elementwise
from tilewright.targets.ascend.kernels.normal import Rows, softmax
from tilewright.targets.ascend.kernels.reductions import reduce_across
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.parts import parted
from tilewright.targets.ascend.program import Buffer, Loop, Place, Program, Tensor
from tilewright.targets.ascend.reader.kernels import read_kernels, verified

SMALL = replace(ASCEND_910, ub=ASCEND_910.ub // 16)

CASES: dict[str, tuple[Callable[[], Program], int]] = {
    # A last portion that begins earlier stays with the one before.
    "sum": (lambda: elementwise("add", "half", 20_000, SMALL, name="sum", even=True), 4),
    "softmax": (lambda: softmax(Rows(3, 40, 64, "half", True), SMALL), 5),
    "attention": (lambda: attention(Heads(2, 256, 33, 16, 16), ASCEND_910), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_compute_what_one_core_does(name: str) -> None:
    """Bit for bit, in every order; what is read back is the same, and proven."""
    make, least = CASES[name]
    whole = make()
    program = parted(whole, 7)
    assert least <= program.blocks <= 7
    assert parted(program, 7) is program and parted(whole, 1) is whole
    random = np.random.default_rng(4)
    given: dict[str, NDArray[np.float16]] = {}
    for tensor in whole.tensors:
        given[tensor.name] = random.normal(size=tensor.bytes // 2).astype(np.float16)
    found: list[NDArray[np.uint16]] = []
    for one, order in ((whole, 0), (program, 0), (program, 2)):
        out = np.full_like(given["out"], np.nan)
        outcome = built(one).run({**given, "out": out}, order=order, blocks=one.blocks)
        assert outcome.problems == ()
        found.append(out.view(np.uint16))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    text = kernel_text(synchronised(program))
    (again,) = read_kernels(text, ASCEND_910)
    assert (kernel_text(again), again.blocks) == (text, program.blocks)
    verified(again, ASCEND_910)


def test_portions_that_share_elements_stay_together() -> None:
    """Of 11 portions the last two store some elements alike, so no way has as many blocks."""
    program = elementwise("relu", "half", 20_001, SMALL, name="relu", even=True)
    (loop,) = [one for one in program.body if isinstance(one, Loop)]
    assert isinstance(loop.count, int)
    assert parted(program, 64).blocks < loop.count


def test_sums_across_iterations_stay_on_one_core() -> None:
    """What is set up before a loop and written within it, and what is stored behind one."""
    whole = reduce_across("add", 1, 4096, 64, SMALL, element="half")
    assert parted(whole, 8).blocks == 1
    home = Buffer("sums", "ub", 0, 32)
    tensor = Tensor("x", 320, written=True)
    loop = Loop("i", 8)
    loop.body = [
        isa.vector("vadd", Place(home), (Place(home), Place(home)), 1, (1, 1, 1), (8, 8, 8)),
        isa.copy(Place(tensor, loop.variable * 32), Place(home), 1, 1),
    ]
    load = isa.copy(Place(home), Place(tensor, 288), 1, 1)
    carried = Program("carried", (tensor,), [load, loop], (home,))
    assert parted(carried, 8) is carried
    # Without what was carried iterations are blocks.
    loop.body = loop.body[1:]
    assert parted(carried, 8).blocks == 8
