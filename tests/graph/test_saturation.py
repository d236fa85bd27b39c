"""What is cut changes nothing: values are cut to their bounds, and results stay what they are."""

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.frontends.emitter import NetworkBuilder
from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.operation import Operation
from tilewright.graph.saturation import (
    FAR,
    UNBOUNDED,
    Bounds,
    as_seen,
    bounds_of,
    finite_range,
    maskable,
    masks_given,
    rows_read,
)
from tilewright.graph.weights import Weights
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, tensor

SHAPE = (2, 5, 5)
CAUSAL = np.triu(np.full((5, 5), 1.0), 1)


class Net:
    """A network of float32, built and run value by value."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.weights = Weights()
        given = [(name, tensor(shape)) for name, shape in inputs.items()]
        self.network = NetworkOp.of("net", given, ["y"])
        self.builder = NetworkBuilder(self.network.block, self.weights)
        self.given = dict(self.network.inputs)

    def op(self, name: str, *operands: SSAValue | Array | float, **attributes: object) -> SSAValue:
        values = [
            v if isinstance(v, SSAValue) else self.builder.weight(np.asarray(v, np.float32), "c")
            for v in operands
        ]
        return self.builder.emit(name, values, attributes, name)  # type: ignore[arg-type]

    def done(self, *results: SSAValue) -> None:
        self.network.block.add_op(OutputOp.build(operands=[list(results)]))

    def run(
        self, inputs: Mapping[str, Array], cut: Mapping[SSAValue, Bounds] | None = None
    ) -> dict[SSAValue, Array]:
        """All values; each cut to its bounds."""
        found: dict[SSAValue, Array] = {}

        def keep(value: SSAValue, array: Array) -> None:
            found[value] = array if cut is None else np.clip(array, *cut[value])

        for name, value in self.given.items():
            keep(value, inputs[name])
        for op in self.network.block.ops:
            if isinstance(op, WeightOp):
                keep(op.result, self.weights.get(op.symbol.data))
            elif isinstance(op, Operation):
                with np.errstate(all="ignore"):
                    keep(op.result, op.evaluate(*(found[value] for value in op.inputs)))
        return found


def masked(form: str, lowest: float) -> tuple[Net, SSAValue]:
    """Attention's scores with a mask, in one of the forms that exporters write; and the mask."""
    net = Net(s=SHAPE, m=(5,))
    s, big = net.given["s"], np.where(CAUSAL, lowest, 0.0)
    if form == "add":
        x = net.op("add", s, big)
    elif form == "first":
        x = net.op("add", big, net.op("mul", s, 0.35))
    elif form == "scaled behind":
        x = net.op("mul", net.op("add", s, big), 0.25)
    elif form == "divided behind":
        x = net.op("div", net.op("add", s, big), 8.0)
    elif form == "negated":
        x = net.op("neg", net.op("sub", net.op("neg", s), big))
    elif form == "subtracted":
        x = net.op("sub", s, -big)
    elif form == "two":
        x = net.op("add", net.op("add", s, big), np.where(np.arange(5) == 4, lowest, 0))
    elif form == "with a bias":
        bias = np.random.default_rng(3).normal(0, 2, (5, 5))
        x = net.op("add", s, net.op("add", big, bias))
    elif form == "computed":
        kept = net.op("sub", 1.0, net.given["m"])
        x = net.op("add", s, net.op("mul", kept, max(lowest, -3e38)))
    else:
        assert form == "chosen"
        x = net.op("select", net.op("less", 0.5, CAUSAL), np.float32(lowest), s)
    net.done(net.op("softmax", x, axis=-1))
    return net, x


FORMS = (
    *("add", "first", "scaled behind", "divided behind", "negated", "subtracted"),
    *("two", "with a bias", "computed", "chosen"),
)


@pytest.mark.parametrize("lowest", [-1e4, -1e9, -3.4028235e38, -np.inf])
@pytest.mark.parametrize("form", FORMS)
def test_cut_masks_mask(form: str, lowest: float) -> None:
    net, x = masked(form, lowest)
    random = np.random.default_rng(0)

    def inputs() -> dict[str, Array]:
        return {
            "s": random.normal(0, 3, SHAPE).astype(np.float32),
            "m": np.array([1, 1, 1, 0, 1] if form == "computed" else [0] * 5, np.float32),
        }

    given = inputs()
    found, rows = net.run(given), rows_read(net.network)
    assert rows == {x: 2}
    seen = {
        value: finite_range(as_seen(array, rows[value]) if value in rows else array)
        for value, array in found.items()
    }
    bounds = dict.fromkeys(found, UNBOUNDED) | bounds_of(net.network, lambda value: seen[value])
    cut = {
        value: tuple(float(end) for end in np.clip(ends, *bounds[value]))
        for value, ends in seen.items()
    }
    # All that a format has to hold is small, though the mask is not.
    assert max(abs(end) for value in (x, *net.given.values()) for end in cut[value]) < 64
    factors = 256 if form == "computed" else 1
    assert all(abs(end) < 1000 * factors for ends in cut.values() for end in ends)
    for sample in (given, inputs(), inputs()):
        want = list(net.run(sample).values())[-1]
        assert np.isfinite(want).all() and (want == 0).any()
        got = list(net.run(sample, bounds).values())[-1]
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_what_others_read_is_not_cut() -> None:
    net = Net(s=SHAPE)
    x = net.op("add", net.given["s"], np.where(CAUSAL, -1e9, 0.0))
    net.done(net.op("softmax", x, axis=-1), net.op("abs", x))
    assert rows_read(net.network) == {}
    assert not maskable(net.network, net.weights)
    assert bounds_of(net.network, lambda _: (0.0, 1.0))[x] == (-np.inf, np.inf)


def test_functions_that_are_flat_cut_their_operands() -> None:
    net = Net(s=SHAPE)
    x = net.op("add", net.given["s"], np.full((5,), 1e6))
    net.done(net.op("sigmoid", x))
    assert bounds_of(net.network, lambda _: (-1.0, 3.0))[x] == (-16, 16)


def test_rows_tell_what_softmax_takes_notice_of() -> None:
    rows = np.array([[3.0, -1e9, -np.inf], [-2.0, 1.0, -40.0], [-1e9, -1e9, -1e9]], np.float32)
    seen = as_seen(rows, 1)
    assert np.array_equal(seen[:2], [[3, 3 - FAR, 3 - FAR], [-2, 1, 1 - FAR]])
    assert np.isnan(seen[2]).all()  # masked altogether
    assert np.isnan(as_seen(np.full((1, 3), -np.inf, np.float32), 1)).all()
    assert as_seen(np.zeros((0, 3), np.float32), 1).size == 0


@pytest.mark.parametrize("name", ["min", "max"])
def test_what_loses_against_the_other_operand_is_cut(name: str) -> None:
    """A mask that keeps scores by a large number, and puts one in their place."""
    net = Net(s=SHAPE)
    mask = np.where(CAUSAL, -1e9, 1e9).astype(np.float32)
    kept = net.op(name, net.given["s"], mask if name == "min" else -mask)
    x = kept if name == "min" else net.op("neg", kept)
    net.done(net.op("softmax", x, axis=-1))
    scores = np.random.default_rng(1).normal(0, 3, SHAPE).astype(np.float32)
    found = net.run({"s": scores})
    seen = {value: finite_range(array) for value, array in found.items()}
    seen[x] = finite_range(as_seen(found[x], 2))
    bounds = dict.fromkeys(found, UNBOUNDED) | bounds_of(net.network, lambda value: seen[value])
    assert all(
        abs(end) < 64 for value, ends in seen.items() for end in np.clip(ends, *bounds[value])
    )
    want, got = (list(net.run({"s": scores}, cut).values())[-1] for cut in (None, bounds))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("lowest", [-1e9, -3.4028235e38])
def test_a_padding_below_all_maxima_is_cut(lowest: float) -> None:
    """Elements of the image are not, however low they are."""
    net = Net(s=(1, 2, 6, 6))
    padded = net.op("pad", net.given["s"], pads=(0, 0, 1, 1, 0, 0, 1, 1), value=lowest)
    net.done(net.op("max_pool", padded, kernel=[3, 3], strides=[2, 2]))
    image = np.random.default_rng(2).normal(0, 3, (1, 2, 6, 6)).astype(np.float32)
    found = net.run({"s": image})
    seen = {value: finite_range(array) for value, array in found.items()}
    bounds = dict.fromkeys(found, UNBOUNDED) | bounds_of(net.network, lambda value: seen[value])
    assert -64 < bounds[padded][0] < image.min()
    want, got = (list(net.run({"s": image}, cut).values())[-1] for cut in (None, bounds))
    np.testing.assert_array_equal(got, want)
    seen[padded] = finite_range(image)
    assert bounds_of(net.network, lambda value: seen[value])[padded] == UNBOUNDED


def test_masks_among_the_inputs_are_found() -> None:
    net = Net(s=SHAPE, m=(5, 5), kept=(5,), other=(5,))
    left = net.op("mul", net.op("sub", 1.0, net.given["kept"]), -1e4)
    scores = net.op("add", net.op("matmul", net.given["s"], CAUSAL), net.op("add", left, 0.0))
    masked_scores = net.op("add", scores, net.op("reshape", net.given["m"], shape=(1, 5, 5)))
    y = net.op("softmax", masked_scores, axis=-1)
    net.done(net.op("add", y, net.given["other"]))
    found = masks_given(net.network)
    assert found == {net.given["m"]: False, net.given["kept"]: True}


def test_inputs_of_which_subtracted_masks_are_computed_are_found() -> None:
    """What is subtracted as it is, and the bias of a residual, are none."""
    net = Net(s=SHAPE, kept=(5,), plain=(5,), other=(5,))
    left = net.op("mul", net.op("sub", 1.0, net.given["kept"]), 1e12)
    scores = net.op("sub", net.op("matmul", net.given["s"], CAUSAL), net.given["plain"])
    y = net.op("softmax", net.op("sub", scores, left), axis=-1)
    net.done(net.op("sub", y, net.given["other"]))
    assert masks_given(net.network) == {net.given["kept"]: True}
