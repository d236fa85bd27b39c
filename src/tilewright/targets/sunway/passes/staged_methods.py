"""Methods of which each step is a kernel of its own, for memories that software manages.

Where no cache keeps what one step leaves for the next, Winograd's method is three kernels: tiles of
the images are transformed, multiplied, and transformed back; and the explicit one is two: windows
are written side by side, and multiplied as matrices (swATOP, section 3). Every kernel is planned as
any other, and the method's price is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, WeightOp
from tilewright.graph.operation import MAXIMUM_ELEMENTS
from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import bytes_of, erase, insert, make
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.graph.passes.methods import TRIAL, Form, Priced, forms_of
from tilewright.graph.passes.reanchoring import (
    anchor_operands,
    anchor_weights,
    plain_kernel,
    with_layouts,
)
from tilewright.ir import SSAValue, StringAttr
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of, tensor
from tilewright.machine import Machine
from tilewright.memory.alignment import ceil_div
from tilewright.numerics.winograd import TRANSFORMS, transform_weights
from tilewright.planning import planner_in
from tilewright.planning.cost.bounds import granule_bound
from tilewright.planning.domain import Kernel
from tilewright.planning.own import start_cycles
from tilewright.planning.planners.cores import one_core
from tilewright.planning.space.join_pixels import join_pixels

DIRECT = "conv"
"""Name of the method that a convolution has by itself."""


EXPLICIT = "conv_explicit"
"""Name of the explicit method: as the cpu's primitive."""


def stages_methods(machine: Machine) -> bool:
    """Return True if a machine computes steps of methods as kernels of their own."""
    return _stages_winograd(machine) or bool(machine.primitives_for("im2col"))


def _stages_winograd(machine: Machine) -> bool:
    """Return True if a machine computes both of Winograd's transforms as kernels of their own."""
    return bool(
        machine.primitives_for("winograd_input") and machine.primitives_for("winograd_output")
    )


def method_name(tile: int, taps: int) -> str:
    """Return the name of a form of Winograd's method, as the cpu's primitives have it."""
    return f"winograd_{tile}" + (f"_{taps}x{taps}" if taps != 3 else "")


def method_names() -> tuple[str, ...]:
    """The methods that can be named."""
    return (DIRECT, EXPLICIT, *(method_name(*sizes) for sizes in TRANSFORMS))


def priced_stages(kernel: KernelOp, context: CompilerContext, below: float | None) -> list[Priced]:
    """The methods of a convolution's kernel with their prices, the direct one first.

    A form that cannot take less than ``below`` times the direct method's cycles, or than a form
    that has been planned, by the bounds of its kernels, is not planned; None plans all.
    """
    anchor = kernel.anchor
    assert isinstance(anchor, ConvOp)
    forms = list(_staged_forms(kernel, anchor, context.machine))
    if not forms:
        return []
    direct = _cycles([_described(kernel, context.machine)], context)
    if direct is None:
        return []
    weight = anchor_weights(kernel)
    priced = [Priced(Form(), DIRECT, direct, 0, bytes_of(weight.result))]
    trials: list[tuple[float, Form, list[Kernel], int, int]] = []
    for form in forms:
        steps = staged(kernel, form, None)
        described = [_described(step, context.machine) for step in steps]
        elements = sum(prod(shape_of(step.result)) for step in steps[:-1])
        factors = bytes_of(steps[1].inputs[1])
        _forget(steps)
        least = sum(_least(step, context.machine) for step in described)
        trials.append((least, form, described, elements, factors))
    best = direct if below is None else below * direct
    for least, form, described, elements, factors in sorted(trials, key=lambda trial: trial[0]):
        if below is not None and least >= best:
            break
        cycles = _cycles(described, context)
        if cycles is not None:
            taps = shape_of(weight.result)[2]
            name = EXPLICIT if form.explicit else method_name(form.tile, taps)
            priced.append(Priced(form, name, cycles, elements, factors))
            best = min(best, cycles)
    return priced


def staged(kernel: KernelOp, form: Form, context: CompilerContext | None) -> list[KernelOp]:
    """The kernels of a method in place of a convolution's, in their order; the second multiplies.

    Without a context they stand beside the old one, with weights that do not exist: a trial.
    """
    steps = _explicit(kernel, context) if form.explicit else _winograd(kernel, form.tile, context)
    if context is not None:
        steps[-1].result.name_hint = kernel.result.name_hint
        kernel.result.replace_all_uses_with(steps[-1].result)
        erase(kernel)
    return steps


def _explicit(kernel: KernelOp, context: CompilerContext | None) -> list[KernelOp]:
    """Two kernels: windows side by side, and a product for each image.

    Before::

        %1 = graph.kernel "k0" (%x, %w, %b) {
          %2 = graph.conv %x, %w, %b {strides = [2, 2]} ...
          %3 = graph.relu %2

    After::

        %1 = graph.kernel "k0_windows" (%x) { graph.im2col %x {kernel = [3, 3], ...} ... }
        %2 = graph.reshape %1 : tensor<1x576x28x28xf32>
        %3 = graph.kernel "k0" (%2, %v, %b) {
          %4 = graph.conv %2, %v, %b : windows of one point
          %5 = graph.relu %4
    """
    anchor, *maps = kernel.operations
    assert isinstance(anchor, ConvOp)
    image, weight, *bias = anchor_operands(kernel)
    co, c, *taps = shape_of(weight)
    attributes = {name: anchor.integers(name) for name in ("strides", "pads", "dilations")}
    first = make(
        "im2col", [image], {**attributes, "kernel": tuple(taps)}, before=kernel, like=anchor
    )
    windows = _enclosed([first], kernel, "windows")
    n, _, _, _, oh, ow = shape_of(first.result)
    shape = (n, c * prod(taps), oh, ow)
    rows = make("reshape", [windows.result], {"shape": shape}, before=kernel, like=anchor)
    flat = (co, c * prod(taps), 1, 1)
    symbol = TRIAL
    if context is not None:
        array = context.weights.get(anchor_weights(kernel).symbol.data)
        symbol = context.weights.add(array.reshape(flat), "rows")
    factors = _factors(kernel, symbol, flat)
    product = make("conv", [rows.result, factors, *bias], {}, before=kernel, like=anchor)
    product.result.name_hint = anchor.result.name_hint
    copies = copied(maps, kernel, {anchor.result: product.result}, kernel)
    return [windows, enclose_with([product, *copies], kernel.properties)]


def _winograd(kernel: KernelOp, tile: int, context: CompilerContext | None) -> list[KernelOp]:
    """Three kernels: inputs transformed, products, outputs.

    Before::

        %1 = graph.kernel "k0" (%x, %w, %b) {
          %2 = graph.conv %x, %w, %b {pads = [1, 1, 1, 1]} ...
          %3 = graph.relu %2

    After::

        %1 = graph.kernel "k0_input" (%x) { graph.winograd_input %x {tile = 4} ... }
        %2 = graph.reshape %1 : tensor<1x2304x1x49xf32>
        %3 = graph.kernel "k0_product" (%2, %u) { graph.conv %2, %u {group = 36} ... }
        %4 = graph.reshape %3 : tensor<36x64x1x7x7xf32>
        %5 = graph.kernel "k0" (%4, %b) {
          %6 = graph.winograd_output %4, %b {extents = [28, 28], tile = 4} ...
          %7 = graph.relu %6
    """
    anchor, *maps = kernel.operations
    assert isinstance(anchor, ConvOp)
    image, weight, *bias = anchor_operands(kernel)
    co, each, taps, _ = shape_of(weight)
    sizes = {"tile": tile, "taps": taps}
    first = make(
        "winograd_input",
        [image],
        {**sizes, "pads": anchor.integers("pads")},
        before=kernel,
        like=anchor,
    )
    points, c, n, th, tw = shape_of(first.result)
    transformed = _enclosed([first], kernel, "input")
    shape = (1, points * c, 1, n * th * tw)
    flat = make("reshape", [transformed.result], {"shape": shape}, before=kernel, like=anchor)
    symbol = TRIAL
    if context is not None:
        array = context.weights.get(anchor_weights(kernel).symbol.data)
        symbol = context.weights.add(point_weights(array, tile), "winograd")
    factors = _factors(kernel, symbol, (points * co, each, 1, 1))
    group = points * (c // each)
    product = make("conv", [flat.result, factors], {"group": group}, before=kernel, like=anchor)
    products = _enclosed([product], kernel, "product")
    shape = (points, co, n, th, tw)
    back = make("reshape", [products.result], {"shape": shape}, before=kernel, like=anchor)
    extents = shape_of(anchor.result)[2:]
    last = make(
        "winograd_output",
        [back.result, *bias],
        {**sizes, "extents": extents},
        before=kernel,
        like=anchor,
    )
    last.result.name_hint = anchor.result.name_hint
    copies = copied(maps, kernel, {anchor.result: last.result}, kernel)
    return [transformed, products, enclose_with([last, *copies], kernel.properties)]


def _factors(kernel: KernelOp, symbol: str, shape: tuple[int, ...]) -> SSAValue:
    """Weights as a product takes them, before the kernel."""
    factors = WeightOp.of(symbol, tensor(shape))
    insert(factors, kernel)
    return factors.result


def point_weights(weights: Array, tile: int) -> Array:
    """Weights [co, ci, taps, taps] as those of the products: [points * co, ci, 1, 1]."""
    each = weights.shape[1]
    points = transform_weights(weights, tile).transpose(2, 3, 0, 1)
    return np.ascontiguousarray(points).reshape(-1, each, 1, 1)


def _enclosed(chain: Sequence[Operation], kernel: KernelOp, part: str) -> KernelOp:
    """A kernel of operations, named after the one that it is a part of."""
    symbol = StringAttr(f"{kernel.symbol.data}_{part}")
    return enclose_with(chain, {**kernel.properties, "symbol": symbol})


def _staged_forms(kernel: KernelOp, anchor: ConvOp, machine: Machine) -> Iterator[Form]:
    """The forms that are defined for a kernel's anchor and that a machine has the steps of, weights
    transformed at compile time.

    Winograd's products of one channel would have one term each: nothing is gained by them.
    """
    asked = candidate(anchor)
    if asked.operation != "conv":
        return
    several = asked.extents.get("ci", 1) > 1
    n, co, *extents = shape_of(anchor.result)
    channels, taps = (shape_of(value) for value in anchor.inputs[:2])
    for form in forms_of(kernel, anchor):
        if form.explicit and machine.primitives_for("im2col"):
            elements = n * channels[1] * prod((*taps[2:], *extents))
        elif form.tile and not form.plain and several and _stages_winograd(machine):
            tiles = prod(ceil_div(extent, form.tile) for extent in extents)
            elements = (form.tile + taps[2] - 1) ** 2 * n * tiles * max(channels[1], co)
        else:
            continue
        if elements <= MAXIMUM_ELEMENTS:
            yield form


def _described(kernel: KernelOp, machine: Machine) -> Kernel:
    """Planning's kernel with the layouts that it will have."""
    primitive = serving(candidate(kernel.anchor), machine)[0]
    described = with_layouts(plain_kernel(kernel), machine, primitive)
    return join_pixels(described, machine)


def _cycles(kernels: Sequence[Kernel], context: CompilerContext) -> float | None:
    """Return the predicted cycles of kernels; None if one of them cannot be planned."""
    total, planner = 0.0, planner_in(context)
    for kernel in kernels:
        try:
            total += planner.plan(kernel).predicted_cycles
        except TilewrightError:
            return None
    return total


def _least(kernel: Kernel, machine: Machine) -> float:
    """Cycles that a kernel takes at least, by its bounds."""
    core = one_core(machine) if machine.cores > 1 else machine
    primitives = machine.primitives_for(kernel.anchor.operation)
    bound = min(granule_bound(kernel, core, primitive) for primitive in primitives)
    return bound / machine.cores + start_cycles(machine)


def _forget(steps: Sequence[KernelOp]) -> None:
    """Erase a trial, with what stands between its kernels."""
    for step in reversed(steps):
        owners = [value.owner for value in step.inputs]
        erase(step)
        for owner in owners:
            if isinstance(owner, WeightOp | Operation) and _is_unused(owner):
                erase(owner)


def _is_unused(op: WeightOp | Operation) -> bool:
    """Return True if an operation is a weight or an unused view left by a trial."""
    if isinstance(op, WeightOp):
        return op.symbol.data == TRIAL
    return op.operation == "reshape" and op.result.first_use is None
