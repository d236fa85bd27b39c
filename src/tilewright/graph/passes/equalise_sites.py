"""The values whose channels can be equalised before quantisation, and the factors.

A product of integers sees one scale for a whole activation, so a channel that is much larger than
the others costs them their bits. Dividing every channel by a factor, and multiplying the weights
that meet it, changes nothing in real numbers and makes the channels alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import NetworkOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import constant, only_user, users
from tilewright.graph.passes.integer_sites import PRODUCTS, Sites, sites_of
from tilewright.ir import SSAValue, f32
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of, tensor_type
from tilewright.numerics.linear import levels
from tilewright.numerics.operators import operators

BY_CHANNEL = operators("homogeneous")
"""Maps that a positive factor of a channel passes through unchanged."""

VIEWS = operators("view")

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of a channel's excess that the weights are given, from 0 to 1; 0.5 splits it evenly."""

FLOOR = 1e-3
"""Channels and weights are taken to be at least this part of the largest, to bound factors."""

GAIN = 0.5
"""Factors are used if the expected square of the error falls below this part of what it was."""

Way = Literal["normalisation", "product", "multiply"]


@dataclass
class Channels:
    """Statistics of each channel of a value on samples (calibration/channels.py); numbers that are
    not finite count as 0."""

    largest: NDArray[np.float64]
    """The largest magnitude of each channel."""
    squares: NDArray[np.float64]
    """The sum of each channel's squares."""
    count: int = 0
    """Numbers seen in each channel."""

    @property
    def power(self) -> NDArray[np.float64]:
        """The mean of each channel's squares."""
        return self.squares / max(self.count, 1)

    def see(self, array: Array, axis: int) -> None:
        """Add an array whose channels lie along an axis."""
        rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1).astype(np.float64)
        rows[~np.isfinite(rows)] = 0.0
        self.largest = np.maximum(self.largest, np.abs(rows).max(axis=1, initial=0.0))
        self.squares = self.squares + np.square(rows).sum(axis=1)
        self.count += rows.shape[1]


@dataclass(frozen=True)
class Site:
    """An activation that products read, and who takes its factors."""

    value: SSAValue
    axis: int
    """The axis of its channels."""
    products: tuple[Operation, ...]
    way: Way
    """Way of the division: a layer normalisation's result, by its scale and shift; that of a
    product with constant weights, by these; or the value itself, by a multiplication after it."""
    producer: Operation | None = None
    """The normalisation or product."""


def equalising_sites(
    network: NetworkOp,
    ctx: CompilerContext,
    keep_float: Collection[str] = (),
    per_channel: bool = True,
) -> list[Site]:
    """List the values of a network to be quantised that can be equalised, in program order.

    A multiplication stands only where the value is made in floats, so that it adds no step between
    integers. Weights of products take factors only if they have a scale for each output channel
    (``per_channel``), which then absorbs the factor.
    """
    sites = sites_of(network, keep_float)
    candidates = (_site(value, sites, ctx, per_channel) for value in sites.roots)
    return [site for site in candidates if site is not None]


def _site(value: SSAValue, sites: Sites, ctx: CompilerContext, per_channel: bool) -> Site | None:
    reading = [op for op in users(value) if isinstance(op, Operation) and _takes(op, value, ctx)]
    products = tuple(op for op in reading if op in sites.integer)
    axes = {_axis(op) for op in products}
    if len(axes) != 1 or tensor_type(value).element_type != f32:
        return None
    axis, owner = axes.pop(), value.owner
    if all(use.operation in products for use in value.uses):
        producer = _producer(value, axis, ctx) if isinstance(owner, Operation) else None
        if producer is not None and producer.operation == "layer_norm":
            return Site(value, axis, products, "normalisation", producer)
        if producer is not None and per_channel:
            return Site(value, axis, products, "product", producer)
    while isinstance(owner, Operation) and owner.operation in VIEWS:
        if only_user(owner.inputs[0]) is not owner:
            return None
        owner = owner.inputs[0].owner
    if isinstance(owner, Operation) and owner in sites.integer:
        return None
    return Site(value, axis, products, "multiply")


def _takes(op: Operation, value: SSAValue, ctx: CompilerContext) -> bool:
    """Return True if a product reads a value's channels with constant weights, and in no other
    way."""
    if op.operation not in PRODUCTS or op.inputs[0] is not value:
        return False
    weight = constant(op.inputs[1], ctx)
    if weight is None or any(operand is value for operand in op.inputs[1:]):
        return False
    return weight.ndim == (4 if op.operation == "conv" else 2) and not op.get("transpose_a", False)


def _axis(op: Operation) -> int:
    """The axis of a product's input along which its channels lie."""
    return 1 if op.operation == "conv" else len(shape_of(op.inputs[0])) - 1


def _producer(value: SSAValue, axis: int, ctx: CompilerContext) -> Operation | None:
    """Return the operation that computes a value and can divide each channel of it at no cost; None
    if there is no such one."""
    op = value.owner
    while isinstance(op, Operation) and op.operation in BY_CHANNEL:
        if op.operation.endswith("pool") and axis != 1:
            return None
        value = op.inputs[0]
        if only_user(value) is not op:
            return None
        op = value.owner
    if not isinstance(op, Operation) or any(constant(v, ctx) is None for v in op.inputs[1:]):
        return None
    last = axis == len(shape_of(value)) - 1
    if op.operation == "layer_norm":
        return op if last and len(op.inputs) == 3 and op.result is value else None
    if op.operation == "matmul":
        return op if last and len(shape_of(op.inputs[1])) == 2 else None
    return op if op.operation == "conv" and axis == 1 else None


def rows_of(op: Operation, weight: Array) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A product's weights as [outputs, inputs, taps], and each one's channel, [outputs, inputs].

    Inputs are those of the output's own group.
    """
    wide = weight.astype(np.float64)
    if op.operation == "conv":
        outputs, inputs = weight.shape[:2]
        rows = wide.reshape(outputs, inputs, -1)
        group = np.arange(outputs) // (outputs // op.integer("group", 1, 2**24))
        return rows, np.arange(inputs)[None, :] + group[:, None] * inputs
    rows = (wide if op.get("transpose_b", False) else wide.T)[:, :, None]
    return rows, np.broadcast_to(np.arange(rows.shape[1]), rows.shape[:2])


def factors_of(
    site: Site,
    seen: Channels,
    ctx: CompilerContext,
    bits: int,
    per_channel: bool,
    power_of_two: bool = False,
) -> NDArray[np.float32] | None:
    """Return the divisor of each channel; None if dividing would not lessen the expected error
    enough.

    Xiao et al., "SmoothQuant: accurate and efficient post-training quantization for large language
    models" (ICML 2023), eq. 4: max|X_j|**alpha / max|W_j|**(1 - alpha), the second over all weights
    that meet channel j. They choose alpha for each network, 0.5 to 0.8; here each site has the one
    of least expected error. For power-of-two formats factors are rounded to powers of two.
    """
    weights: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
    largest = np.zeros(len(seen.largest))
    for op in site.products:
        weight = constant(op.inputs[1], ctx)
        assert weight is not None
        rows, channel = rows_of(op, weight)
        weights.append((rows, channel))
        np.maximum.at(largest, channel, np.abs(rows).max(axis=2, initial=0.0))
    if not seen.largest.any() or not largest.any():
        return None
    x = np.maximum(seen.largest, FLOOR * seen.largest.max())
    w = np.maximum(largest, FLOOR * largest.max())

    def error(factors: NDArray[np.float64]) -> float:
        return sum(_error(*pair, seen, factors, bits, per_channel) for pair in weights)

    least, best = GAIN * error(np.ones(len(x))), None
    for alpha in ALPHAS:
        factors = x**alpha / w ** (1 - alpha)
        if power_of_two:
            factors = 2.0 ** np.rint(np.log2(factors))
        with np.errstate(over="ignore"):
            factors = factors.astype(np.float32)
        if not (np.isfinite(factors) & (factors > 0)).all():
            continue
        error_now = error(factors.astype(np.float64))
        if error_now < least:
            least, best = error_now, factors
    return best


def _error(
    rows: NDArray[np.float64],
    channel: NDArray[np.int64],
    seen: Channels,
    factors: NDArray[np.float64],
    bits: int,
    per_channel: bool,
) -> float:
    """Expected square of a product's error, over all of its outputs, in units of a step's variance.

    Steps of activations times the squares of weights, and steps of weights times the squares of
    activations: both are rounded evenly within a step, and independently.
    """
    steps = levels(bits)
    scaled = rows * factors[channel][:, :, None]
    activation = float((seen.largest / factors).max()) / steps
    limits = np.abs(scaled).max(axis=(1, 2), initial=0.0)
    limits = limits if per_channel else np.full_like(limits, limits.max())
    power = (seen.power / np.square(factors))[channel].sum(axis=1) * rows.shape[2]
    noise = np.square(activation) * np.square(scaled).sum() + (np.square(limits / steps) @ power)
    return float(noise)
