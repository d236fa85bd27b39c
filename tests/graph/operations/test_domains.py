"""An operation's domain, run as the loop nest that it is, computes what its meaning computes."""

import numpy as np
import pytest

from tests.graph.operations.catalogue import (
    BINARY,
    CONVOLUTIONS,
    EXAMPLES,
    MAPS,
    NORMALISATIONS,
    POOLS,
    PRODUCTS,
    VIEWS,
    conv,
    max_pool,
)
from tests.graph.operations.example import Example
from tests.graph.operations.iterate import REDUCE, run_stage
from tilewright.graph.operations import BY_NAME, Operation
from tilewright.ir import Block
from tilewright.ir.types import Array, FixedType, shape_of, tensor
from tilewright.numerics.reference import pool_counts
from tilewright.planning.domain import Stage

MORE = [
    conv(
        (1, 4, 5, 4),
        (8, 2, 3, 2),
        True,
        group=2,
        dilations=(1, 2),
        strides=(2, 1),
        pads=(2, 0, 1, 1),
    ),
    conv((1, 3, 6, 5), (3, 1, 3, 3), True, group=3, dilations=(2, 1), pads=(1, 1, 1, 1)),
    conv((1, 2, 9, 4), (2, 2, 3, 1), False, strides=(3, 2), pads=(4, 0, 0, 3)),
    max_pool((1, 1, 5, 5), (3, 3), strides=(1, 2), pads=(2, 1, 0, 2)),
    Example("lrn", ((1, 6, 2, 2),), {"size": 4, "alpha": 0.5}, lambda _: []),
]

ITERABLE = [
    example
    for example in CONVOLUTIONS + POOLS + PRODUCTS + NORMALISATIONS + MAPS + BINARY + VIEWS + MORE
    if example.operation in REDUCE and sum(int(np.prod(s)) for s in example.shapes) < 900
]


def stage_of(op: Operation) -> Stage:
    stage = op.stage([f"x{i}" for i in range(len(op.inputs))], "y")
    assert stage is not None
    return stage


@pytest.mark.parametrize("example", ITERABLE, ids=str)
def test_domain_computes_the_meaning(example: Example) -> None:
    op = example.make()
    operands = example.operands(5)
    arrays = {f"x{i}": array for i, array in enumerate(operands)}
    if example.attributes.get("mode", "constant") != "constant":
        assert op.stage(["x0"], "y") is None
        return
    result = run_stage(stage_of(op), arrays)
    np.testing.assert_allclose(
        finish(op, result, operands), op.evaluate(*operands), rtol=1e-5, atol=1e-5
    )


def finish(op: Operation, result: Array, operands: list[Array]) -> Array:
    """The part of a meaning that comes after the reduction."""
    values = op.values
    x = operands[0].astype(np.float64)
    match op.operation:
        case "average_pool":
            counted = values["counted"]
            counts = pool_counts(
                x.shape[2:],
                values["kernel"],
                values["strides"],
                values["pads"],
                (1, 1),
                counted,
            )
            return result / counts
        case "reduce_mean":
            return result / (x.size / result.size)
        case "lrn":
            base = values["bias"] + values["alpha"] / values["size"] * result
            return x / base ** values["beta"]
        case "softmax":
            e = np.exp(result)
            return e / e.sum(axis=values["axis"], keepdims=True)
        case _:
            return result


def test_the_loop_nests_cover_conv_pool_matmul_and_lrn() -> None:
    covered = [example.operation for example in ITERABLE]
    assert {op: covered.count(op) for op in ("conv", "max_pool", "average_pool", "lrn")} == {
        "conv": 11,
        "max_pool": 4,
        "average_pool": 4,
        "lrn": 5,
    }
    assert covered.count("matmul") == 7


FIXED = [example for example in ITERABLE if example.operation in ("conv", "matmul", "max_pool")]


@pytest.mark.parametrize("example", FIXED, ids=str)
def test_fixed_domain_computes_the_meaning_exactly(example: Example) -> None:
    elements = [FixedType.of(16, 5), FixedType.of(16, 9), FixedType.of(32, 14)]
    kinds = [
        tensor(shape, element) for shape, element in zip(example.shapes, elements, strict=False)
    ]
    op = BY_NAME[example.operation].build_from(Block(arg_types=kinds).args, example.attributes)
    assert isinstance(op, Operation)
    op.verify()
    generator = np.random.default_rng(11)
    operands = [
        generator.integers(-32768, 32768, shape).astype(np.int16) for shape in example.shapes[:2]
    ]
    operands += [
        generator.integers(-(2**31), 2**31, shape).astype(np.int32) for shape in example.shapes[2:]
    ]
    stage = stage_of(op)
    assert [operand.fraction for operand in stage.inputs] == [5, 9, 14][: len(operands)]
    exact = run_stage(stage, {f"x{i}": array for i, array in enumerate(operands)})
    bits = 16 if example.operation == "max_pool" else 32
    wrapped = (exact + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    result = op.evaluate(*operands)
    assert result.dtype == f"int{bits}"
    np.testing.assert_array_equal(result, wrapped.astype(result.dtype))


def test_dims_have_the_names_that_machines_know() -> None:
    names = {
        "conv": {"n co oh ow ci kh kw", "n g co oh ow ci kh kw", "n c oh ow kh kw"},
        "max_pool": {"n c oh ow kh kw"},
        "average_pool": {"n c oh ow kh kw"},
        "matmul": {"n co ci", "b0 m co ci", "b0 b1 m co ci", "m b0 co ci"},
        "lrn": {"n c h w j"},
    }
    for example in EXAMPLES:
        if example.operation in names:
            stage = stage_of(example.make())
            assert " ".join(stage.extents) in names[example.operation]
            reduction = {"ci", "kh", "kw", "j"} & set(stage.extents)
            assert set(stage.reduction) == reduction


def test_single_rows_by_one_matrix_are_rows_of_one_product() -> None:
    """A batch by a matrix each stays a batch."""
    found = {
        example.shapes[:2]: stage_of(example.make()).extents
        for example in EXAMPLES
        if example.operation == "matmul"
    }
    assert found[(4, 1, 6), (3, 6)] == {"m": 4, "b0": 1, "co": 3, "ci": 6}
    assert found[(4, 1, 6), (4, 6, 3)] == {"b0": 4, "m": 1, "co": 3, "ci": 6}


def test_depthwise_is_an_operation_of_its_own() -> None:
    assert [stage_of(example.make()).operation for example in CONVOLUTIONS].count(
        "depthwise_conv"
    ) == 1


def test_stages_carry_attributes_and_roles() -> None:
    stage = stage_of(CONVOLUTIONS[1].make())
    assert dict(stage.attributes) == {
        "strides": (1, 1),
        "pads": (1, 0, 2, 1),
        "dilations": (1, 1),
        "group": 2,
    }
    assert [operand.role for operand in stage.inputs] == ["input", "weight", "bias"]
    assert stage.output.role == "output" and stage.node == "a node"


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_stage_writes_every_element_once(example: Example) -> None:
    stage = example.make().stage([f"x{i}" for i in range(len(example.shapes))], "y")
    if stage is None:
        assert example.operation in ("concat", "interleave", "reshape", "pad")
        return
    written = 1
    for dim in stage.dims:
        written *= dim.extent if dim.name in stage.output.dims else 1
    assert written == int(np.prod(shape_of(example.make().result)))
