"""The stages of the pipeline that choose numbers: formats that are asked for, and fixed point."""

from __future__ import annotations

from itertools import chain, islice

from tilewright.compiler.state import CompilationState, context_of, drop_dead_weights
from tilewright.errors import refuse
from tilewright.graph.dialect import GraphOperation, network_of
from tilewright.graph.passes.editing import operations_of
from tilewright.graph.passes.equalise_sites import equalising_sites, factors_of
from tilewright.graph.passes.quantise import check_nodes, quantise_pipeline
from tilewright.graph.passes.stated_points import read_points
from tilewright.graph.values import value_names
from tilewright.machine import Machine
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


def read_stated_points(work: CompilationState) -> None:
    """The binary points of a quantised model are its tensors' own, in place of calibrated ones."""
    network = network_of(work.network)
    if network.numbers is not None:
        return
    found = read_points(network, work.runner.context)
    work.notes += found.left
    if found.fractions:
        work.stated = found
        work.ranges = {**found.ranges(work.machine.fixed_bits), **(work.ranges or {})}
        count = len(found.fractions)
        work.notes.append(f"{count} tensors keep the binary points that the model states")


def quantise(work: CompilationState) -> None:
    """The number format that was asked for; machines of fixed point choose theirs later."""
    number = work.machine.number
    if number.kind == "integer" and work.numbers is None and not is_quantised(work):
        work.numbers = numbers_of(number.name)
        if work.samples is None and work.ranges is None:
            work.notes.append(
                f"scales come from {RANDOM_SAMPLES} random inputs; give calibration data for real "
                "accuracy"
            )
    numbers = work.numbers
    if numbers is None:
        return
    check_numbers(work)
    late = number.is_narrow and number.kind != "integer"
    if late or numbers.format.is_plain:
        return
    prepare_ranges(work, numbers)
    work.runner.run(work.network, quantise_pipeline(numbers)[-1], "graph-")
    drop_dead_weights(work)


def is_quantised(work: CompilationState) -> bool:
    """Whether a network came with integers and scales of its own."""
    scaled = ("quantise_linear", "dequantise_linear", "requantise_linear")
    return any(op.operation in scaled for op in operations_of(work.network))


def prepare_ranges(work: CompilationState, numbers: Numbers) -> None:
    """The float32 network in the form that is quantised, and, if the format needs them, ranges."""
    before, equalise, _ = quantise_pipeline(numbers)
    work.runner.run(work.network, before, "graph-")
    if not numbers.needs_ranges:
        return
    if equalise:
        choose_factors(work, numbers)
        work.runner.run(work.network, equalise, "graph-")
    observe(work)


def choose_factors(work: CompilationState, numbers: Numbers) -> None:
    """Let the context know what the channels of values are to be divided by.

    Magnitudes of channels come from the first samples alone, which are kept for the observers of
    ranges: samples may be a stream that can be read only once.
    """
    if work.factors is None and work.samples is not None:
        context, network = work.runner.context, network_of(work.network)
        chosen, names = numbers.format, value_names(work.network)
        sites = equalising_sites(network, context, numbers.keep_float, chosen.per_channel)
        # Between two integer products it made held-out errors of small CNNs 3 to 12 percent larger.
        sites = [site for site in sites if site.way != "product"]
        work.factors = {}
        if sites:
            stream = samples_of(network, work.samples)
            rest = iter(stream)
            first = list(islice(rest, CHANNEL_SAMPLES))
            work.samples = SampleStream(chain(first, rest), stream.count)
            axes = {names[site.value]: site.axis for site in sites}
            seen = observed_channels(
                work.network, work.weights, first, axes,
                lambda done: work.progress("observe channels", done, len(first)),
            )  # fmt: skip
            for site in sites:
                if (name := names[site.value]) not in seen:
                    continue
                factors = factors_of(
                    site, seen[name], context, chosen.bits, chosen.per_channel, chosen.power_of_two
                )
                if factors is not None:
                    work.factors[name] = factors
    work.runner.context = context_of(work, {})


def check_numbers(work: CompilationState) -> None:
    """Refuse a format that the machine does not compute in, and nodes that the model has not."""
    numbers = work.numbers
    if numbers is None:
        return
    known = [node.name for node in work.nodes] or sorted(
        {op.node_name for op in work.network.walk() if isinstance(op, GraphOperation)} - {""}
    )
    check_nodes(numbers.keep_float, known)
    check_format(work.machine, numbers, work.samples is not None or work.ranges is not None)


def check_format(machine: Machine, numbers: Numbers, calibrated: bool) -> None:
    """Refuse a format or observer that does not go with the machine or lacks ranges."""
    # Scales of int8 may be powers of two; fixed point has none.
    element = ELEMENTS.get(numbers.format.name)
    scaled = numbers.format.has_bytes and (element is None or element.kind != "fixed")
    own = machine.number.kind == "integer" and scaled
    if not machine.computes_as_given and numbers.format.name != machine.element and not own:
        raise refuse(
            "numbers-machine",
            f"{machine.name} computes in {machine.element}, not in {numbers.format.name}",
            help=f"its numbers are {machine.element}; cpu takes all formats",
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


def kept_on_host(work: CompilationState) -> tuple[str, ...]:
    """Nodes that are to stay float32, on machines that compute in fixed point."""
    if work.numbers is None or work.machine.computes_as_given:
        return ()
    return work.numbers.keep_float


def calibrate(work: CompilationState) -> None:
    """Ranges of all values on sample inputs, for machines that compute in fixed point.

    A network that came with its numbers needs none.
    """
    if work.machine.number.kind != "fixed" or network_of(work.network).numbers is not None:
        return
    if work.samples is None and work.ranges is None:
        work.notes.append(
            f"binary points come from {RANDOM_SAMPLES} random inputs; give calibration data "
            "for real accuracy"
        )
    observe(work)


def observe(work: CompilationState) -> None:
    """Let the context know the ranges that the values take on the samples."""
    numbers = work.numbers
    if work.samples is None and work.ranges is not None and work.machine.number.kind != "fixed":
        work.runner.context = context_of(work, work.ranges)
        return
    samples = samples_of(network_of(work.network), work.samples)

    def observer() -> Observer:
        if numbers is None:
            return Observer()
        chosen = numbers.format
        return Observer(numbers.observer, levels(chosen.bits), chosen.power_of_two)

    ranges = observed_ranges(work.network, work.weights, samples, observer, work.progress)
    # Ranges from samples of another shape come first; what they do not name has random ones.
    work.runner.context = context_of(work, {**ranges, **(work.ranges or {})})
