"""The stages of the pipeline that choose numbers: formats that are asked for, and fixed point."""

from __future__ import annotations

from itertools import chain, islice

from tilewright.compiler.state import CompilationState, context_of, drop_dead_weights
from tilewright.errors import refuse
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import operations_of
from tilewright.graph.passes.enclosing import accelerated_values
from tilewright.graph.passes.equalise_sites import equalising_sites, factors_of
from tilewright.graph.passes.quantise import check_nodes, quantise_pipeline
from tilewright.graph.passes.stated_points import read_points
from tilewright.graph.represented import stated_ranges
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.machine import Machine
from tilewright.machine.numbers import integers_of, multiplied_integers
from tilewright.numbers.calibration import (
    RANDOM_SAMPLES,
    SampleStream,
    observed_channels,
    observed_ranges,
    samples_of,
)
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.formats import Numbers, numbers_of
from tilewright.numerics.linear import levels
from tilewright.numerics.observers import Observer

CHANNEL_SAMPLES = 16
"""Samples on which magnitudes of channels are observed."""


def read_stated_points(state: CompilationState) -> None:
    """The binary points of a quantised model are its tensors' own, in place of calibrated ones."""
    network = network_of(state.network)
    if network.numbers is not None:
        return
    points = read_points(network, state.runner.context)
    state.notes += points.left
    if points.count:
        state.stated = points
        state.notes.append(f"{points.count} tensors keep the binary points that the model states")


def quantise(state: CompilationState) -> None:
    """The number format that was asked for; machines of fixed point choose theirs later."""
    number = state.machine.number
    state.notes += float_products(state)
    asked = state.numbers is not None or state.settled
    if number.kind == "integer" and not asked and not is_quantised(state):
        state.numbers = numbers_of(number.name)
        if state.samples is None and state.ranges is None:
            state.notes.append(
                f"scales come from {RANDOM_SAMPLES} random inputs; give calibration data for real "
                "accuracy"
            )
    numbers = state.numbers
    if numbers is None:
        if state.samples is not None and number.kind == "float" and not number.is_narrow:
            state.notes.append(f"calibration data are not used: {number.name} has no scales")
        return
    check_numbers(state)
    after_import = number.is_narrow and number.kind != "integer"
    if after_import or numbers.format.is_plain:
        return
    prepare_ranges(state, numbers)
    state.runner.run(state.network, quantise_pipeline(numbers)[-1], "graph-")
    drop_dead_weights(state)


def float_products(state: CompilationState) -> list[str]:
    """A note on the products of two quantised activations, which stay in floats on a machine that
    multiplies integers by constant weights alone."""
    integers = multiplied_integers(state.machine) or frozenset[str]()
    left = [
        op.node_name or op.operation
        for op in operations_of(state.network)
        if op.operation in integers and all(map(_dequantised, op.inputs[:2]))
    ]
    if not left:
        return []
    machine = state.machine
    return [
        f"{', '.join(left)}: computed in {machine.number.name}, as {machine.name} multiplies "
        "integers by constant weights alone; without QuantizeLinear before both operands this "
        "is faster"
    ]


def _dequantised(value: SSAValue) -> bool:
    """Return True if a value is a dequantised one, perhaps reshaped or transposed."""
    op = value.owner
    while isinstance(op, Operation) and op.operation in ("reshape", "transpose"):
        op = op.inputs[0].owner
    return isinstance(op, Operation) and op.operation == "dequantise_linear"


def is_quantised(state: CompilationState) -> bool:
    """Return True if the model itself has integers and scales, be it in the body of a loop."""
    scaled = ("quantise_linear", "dequantise_linear", "requantise_linear")
    return any(op.operation in scaled for op in state.network.walk() if isinstance(op, Operation))


def prepare_ranges(state: CompilationState, numbers: Numbers) -> None:
    """The float32 network in the form that is quantised, and, if the format needs them, ranges."""
    if not numbers.needs_ranges:
        return
    equalise, _ = quantise_pipeline(numbers)
    if equalise:
        choose_factors(state, numbers)
        state.runner.run(state.network, equalise, "graph-")
    observe(state)


def choose_factors(state: CompilationState, numbers: Numbers) -> None:
    """Let the context know what the channels of values are to be divided by.

    Magnitudes of channels come from the first samples alone, which are kept for the observers of
    ranges: samples may be a stream that can be read only once.
    """
    if state.factors is None and state.samples is not None:
        context, network = state.runner.context, network_of(state.network)
        chosen, names = numbers.format, value_names(state.network)
        sites = equalising_sites(network, context, numbers.keep_float, chosen.per_channel)
        # Between two integer products it made held-out errors of small CNNs 3 to 12 percent larger.
        sites = [site for site in sites if site.way != "product"]
        state.factors = {}
        if sites:
            stream = samples_of(network, state.samples)
            rest = iter(stream)
            first = list(islice(rest, CHANNEL_SAMPLES))
            state.samples = SampleStream(chain(first, rest), stream.count)
            axes = {names[site.value]: site.axis for site in sites}
            seen = observed_channels(
                state.network, state.weights, first, axes,
                lambda done: state.progress("observe channels", done, len(first)),
            )  # fmt: skip
            for site in sites:
                if (name := names[site.value]) not in seen:
                    continue
                factors = factors_of(
                    site, seen[name], context, chosen.bits, chosen.per_channel, chosen.power_of_two
                )
                if factors is not None:
                    state.factors[name] = factors
    state.runner.context = context_of(state, {})


def check_numbers(state: CompilationState) -> None:
    """Refuse a format that the machine does not compute in, and nodes that the model has not."""
    numbers = state.numbers
    if numbers is None:
        return
    known = [node.name for node in state.nodes] or sorted(
        {op.node_name for op in state.network.walk() if isinstance(op, Operation)} - {""}
    )
    check_nodes(numbers.keep_float, known)
    check_format(state.machine, numbers, state.samples is not None or state.ranges is not None)


def check_format(machine: Machine, numbers: Numbers, calibrated: bool) -> None:
    """Refuse a format or observer that does not go with the machine or lacks ranges."""
    # Scales of int8 may be powers of two; fixed point has none.
    element = ELEMENTS.get(numbers.format.name)
    scaled = numbers.format.has_bytes and (element is None or element.kind != "fixed")
    computes_integers = machine.number.kind == "integer" and scaled
    if (
        not machine.computes_as_given
        and numbers.format.name != machine.element
        and not computes_integers
    ):
        own_numbers = f"its numbers are {machine.element}"
        if integers_of(machine) is not None and scaled:
            own_numbers = "a model that is quantised already (QDQ) keeps its integers there"
        raise refuse(
            "numbers-machine",
            f"{machine.name} computes in {machine.element}, not in {numbers.format.name}",
            help=f"{own_numbers}; cpu takes all formats",
        )
    if machine.number.kind == "fixed" and numbers.observer != "minimum-maximum":
        raise refuse(
            "numbers-observer",
            f"sums on {machine.name} wrap around beyond the calibrated range, so nothing is cut",
            help="leave the observer out",
        )
    if machine.computes_as_given and numbers.needs_ranges and not calibrated:
        raise refuse(
            "numbers-calibration",
            f"the scales of {numbers.format.name} come from sample inputs",
            help="give calibration data: an .npz, a folder of images, or an iterable",
        )


def kept_on_host(state: CompilationState) -> tuple[str, ...]:
    """Nodes that are to stay float32, on machines that compute in fixed point."""
    if state.numbers is None or state.machine.computes_as_given:
        return ()
    return state.numbers.keep_float


def calibrate(state: CompilationState) -> None:
    """Ranges of all values on sample inputs, for machines that compute in fixed point.

    A network that came with its numbers needs none, nor does one that the host runs.
    """
    network = network_of(state.network)
    if state.machine.number.kind != "fixed" or network.numbers is not None:
        return
    if state.samples is None and state.ranges is None and state.stated is None:
        if not accelerated_values(network):
            return
        state.notes.append(
            f"binary points come from {RANDOM_SAMPLES} random inputs; give calibration data "
            "for real accuracy"
        )
    observe(state)


def observe(state: CompilationState) -> None:
    """Let the context know the ranges that the values take on the samples."""
    numbers, given = state.numbers, state.samples is None and state.ranges is not None
    masked = network_of(state.network).sizes  # Masks of sizes are in no package's ranges.
    if given and state.machine.number.kind != "fixed" and not masked:
        state.runner.context = context_of(state, state.ranges or {})
        return
    samples = samples_of(network_of(state.network), state.samples)

    def observer() -> Observer:
        if numbers is None:
            return Observer()
        chosen = numbers.format
        return Observer(numbers.observer, levels(chosen.bits), chosen.power_of_two)

    fixed = state.machine.number.kind == "fixed"
    ranges = observed_ranges(
        state.network, state.weights, samples, observer, state.progress, masks=fixed
    )
    if state.samples is None:
        ranges = {**ranges, **stated_ranges(state.network, state.weights)}
    # Ranges from samples of another shape come first; what they do not name has random ones.
    state.runner.context = context_of(state, {**ranges, **(state.ranges or {})})
