"""Layouts of weights that are matrices: transposed ones, and batches of them."""

import numpy as np
import pytest

from tilewright.machine import Machine, Memory, Primitive, Storage
from tilewright.planning.domain import Affine, Operand
from tilewright.planning.layout import Layout
from tilewright.planning.space.operand_layouts import operand_layout, takes_operand
from tilewright.targets.cpu.capabilities import CpuPrimitive


def machine(weight: str, dot: int = 1) -> tuple[Machine, Primitive]:
    operands = {
        role: Storage(memory="dram", layout=layout)
        for role, layout in {"input": "NC", "weight": weight, "output": "NC"}.items()
    }
    product = Primitive(
        name="p",
        operations=("matmul",),
        engine="e",
        operands=operands,
        cycles="co",
        peak="co",
        own=CpuPrimitive(dot=dot),
    )
    found = Machine.model_construct(memories=(Memory(name="dram"),), primitives=(product,))
    return found.model_copy(update={"layouts": {}}), product


def weights(*dims: str) -> Operand:
    extents = {"b": 3, "ci": 6, "co": 9}
    access = tuple(Affine(((dim, 1),)) for dim in dims)
    return Operand("w", tuple(extents[dim] for dim in dims), access, role="weight")


@pytest.mark.parametrize("text", ["OI4o", "OI4o2i", "OI"])
def test_a_matrix_lies_alike_however_it_is_held(text: str) -> None:
    """What is in memory is the same for [co, ci], [ci, co] and, one after another, a batch."""
    described, product = machine(text)
    plain = np.arange(54).reshape(9, 6)
    held = Layout.parse(text, 2).pack(plain)
    for matrix, dims in ((plain, ("co", "ci")), (plain.T, ("ci", "co"))):
        layout = Layout.parse(operand_layout(described, product, weights(*dims)), 2)
        np.testing.assert_array_equal(layout.pack(matrix), held)
        batch = np.stack([matrix, matrix * 100, matrix * -1])
        layout = Layout.parse(operand_layout(described, product, weights("b", *dims)), 3)
        np.testing.assert_array_equal(layout.pack(batch), [held, held * 100, -held])


def test_row_major_layouts_have_no_name() -> None:
    described, product = machine("IO")
    assert operand_layout(described, product, weights("ci", "co")) == ""
    assert operand_layout(described, product, weights("b", "ci", "co")) == ""
    assert operand_layout(described, product, weights("co", "ci")) == "NM"


def test_other_layouts_are_those_of_the_rank() -> None:
    described, product = machine("OIHW4o")
    assert operand_layout(described, product, weights("co", "ci")) == ""
    described, product = machine("any")
    assert operand_layout(described, product, weights("b", "ci", "co")) == "any"


def test_dot_products_need_words_of_weights() -> None:
    described, product = machine("OI4o2i", dot=2)
    assert takes_operand(described, product, weights("b", "ci", "co"))
    described, product = machine("OIHW4o2i", dot=2)
    assert not takes_operand(described, product, weights("b", "ci", "co"))
