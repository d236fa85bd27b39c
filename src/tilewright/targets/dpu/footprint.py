"""The bank rows and bytes of main memory that an operation touches, and its refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.targets.dpu import places
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.formats import ACTIVATIONS, ALU_MODES, POOLS
from tilewright.targets.dpu.operations import Operation
from tilewright.targets.dpu.places import Rows, joined

SUMS = ("none", "relu", "leaky", "relu6")
"""Activations that sums of products can have."""

MOST_SHIFT_BIAS = 20
MOST_STRIDE = 8
"""Of a convolution, in both directions."""

CONSTANT = 7
"""``broadcast`` of a LOAD that fills with a constant."""


@dataclass(frozen=True)
class Span:
    """Bytes behind a base register: ``count`` runs of ``run`` bytes, ``stride`` apart."""

    register: int
    address: int
    run: int
    count: int
    stride: int

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.address + (self.count - 1) * self.stride + self.run


@dataclass(frozen=True)
class Footprint:
    """Bank rows, ascending, each once; at most one span of main memory."""

    reads: Rows
    writes: Rows
    loads: Span | None = None
    stores: Span | None = None


def footprint(core: Core, operation: Operation) -> Footprint:
    """Return the bank rows and bytes of main memory that an operation touches.

    Rows and columns of padding are not read. Raises TilewrightError (``program-field``) for fields
    that the core cannot execute, or whose meaning is not published.
    """
    return _FOOTPRINTS.get(operation.mnemonic, _nothing)(core, operation)


class Footprints:
    """Footprints of a core's operations; those of computes are kept, as tiles repeat them."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._known: dict[tuple[object, ...], Footprint] = {}

    def of(self, operation: Operation) -> Footprint:
        """Return the result of ``footprint``, which is kept for compute operations."""
        if operation.mnemonic not in _COMPUTES:
            return footprint(self.core, operation)
        fields = operation.fields
        key = (
            operation.mnemonic,
            *(fields[name] for name in fields if name not in ("take", "put")),
            *(value for operand in operation.operands for value in operand.values()),
        )
        if key not in self._known:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            self._known[key] = footprint(self.core, operation)
        return self._known[key]


MOST_KNOWN = 4096
"""Footprints that are kept at once: some tens of kilobytes each."""


def _nothing(core: Core, operation: Operation) -> Footprint:
    return Footprint(joined([]), joined([]))


def _load(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    rows = places.transfer_rows(core, operation)
    if fields["mode_avg"]:
        raise operation.refuse("it subtracts a mean, from a bank that this core does not have")
    if fields.get("broadcast", 0) == CONSTANT:
        return Footprint(joined([]), joined([rows]))
    if fields.get("broadcast", 0):
        raise operation.refuse(f"the meaning of broadcast={fields['broadcast']} is not published")
    if augmented(core, fields):
        after = fields["pad_idx"] - 1
        masked = fields["pad_end"] + fields["jump_read"] * after if fields["pad_end"] else 0
        whole = -(-fields["channel"] // core.channels) * core.channels
        if fields["pad_start"] >= fields["channel"] or masked >= whole:
            raise operation.refuse("pad_start or pad_end covers a whole run")
        if fields["pad_idx"] > fields["length"]:
            raise operation.refuse("pad_idx counts more runs than there are")
    span = Span(
        fields["reg_id"],
        fields["ddr_addr"],
        fields["channel"],
        fields["length"],
        fields["jump_read"],
    )
    return Footprint(joined([]), joined([rows]), loads=span)


def augmented(core: Core, fields: Mapping[str, int]) -> bool:
    """Return True if the runs of a LOAD overlap, so that its padding fields count."""
    return fields["jump_read"] <= fields["channel"] <= 2 * core.channels


def _save(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    rows = places.transfer_rows(core, operation)
    if fields.get("argmax", 0):
        raise operation.refuse("the meaning of argmax is not published")
    span = Span(
        fields["reg_id"],
        fields["ddr_addr"],
        fields["channel"],
        fields["length"],
        fields["jump_write"],
    )
    reads = [] if fields.get("const_en", 0) else [rows]
    return Footprint(joined(reads), joined([]), stores=span)


def _at_once(operation: Operation, most: int) -> None:
    rows = operation.fields["valid_pixel_parallel"]
    if rows > most:
        raise operation.refuse(f"valid_pixel_parallel={rows}: the core computes {most} rows")


def _sums(operation: Operation) -> None:
    """Refuse activations and shifts that sums of products cannot have."""
    fields = operation.fields
    if ACTIVATIONS[fields["act_type"]] not in SUMS:
        raise operation.refuse("no such activation of sums", ", ".join(SUMS))
    if fields["shift_bias"] > MOST_SHIFT_BIAS:
        raise operation.refuse(f"shift_bias={fields['shift_bias']}", f"0 to {MOST_SHIFT_BIAS}")


def _channels(core: Core, operation: Operation) -> None:
    if operation.fields["channel_offset"] >= core.channels:
        raise operation.refuse(f"channel_offset: a group has {core.channels} channels")


def _weights(core: Core, operation: Operation, step: int) -> int:
    """Rows of weights; they must not overlap in the bank's ring."""
    fields = operation.fields
    rows = fields["kernel_h"] * fields["kernel_w"] * step
    if rows > DEPTH:
        raise operation.refuse(f"its weights take {rows} rows of a bank of {DEPTH}")
    return rows


def _window(core: Core, operation: Operation) -> tuple[Rows, int]:
    """The rows of its window that are read, and its groups of channels."""
    image = places.input_image(core, operation)
    inside = places.padding_of(operation).inside(len(image.bank), image.width)
    return image.part(*inside), image.groups


def _conv(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    _at_once(operation, core.rows)
    _sums(operation)
    _channels(core, operation)
    if max(fields["stride_h"], fields["stride_w"]) > MOST_STRIDE:
        raise operation.refuse(f"the strides of a convolution are 1 to {MOST_STRIDE}")
    window, groups = _window(core, operation)
    count = _weights(core, operation, groups)
    weights = places.block(core, "weight", fields["bank_addr_weights"], count)
    bias = places.block(core, "bias", fields["bank_addr_bias"], 1)
    result = places.output_image(core, operation, 1).rows
    return Footprint(joined([window, weights, bias]), joined([result]))


def _depthwise(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    _at_once(operation, core.misc_rows)
    _sums(operation)
    _channels(core, operation)
    window, groups = _window(core, operation)
    weights = depthwise_weights(core, operation)
    bias = places.block(core, "bias", fields["bank_addr_bias"], groups)
    result = places.output_image(core, operation, groups).rows
    return Footprint(joined([window, weights, bias]), joined([result]))


def depthwise_weights(core: Core, operation: Operation) -> Rows:
    """[kernel elements, groups]: rows of the depthwise bank."""
    fields = operation.fields
    groups = fields["channel_group"]
    step = fields.get("jump_read_weights", groups)
    _weights(core, operation, max(step, groups))
    return places.scattered(
        fields["bank_addr_weights"],
        fields["kernel_h"] * fields["kernel_w"],
        step,
        groups,
        core.group("depthwise").first,
    )


def _pool(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    _at_once(operation, core.misc_rows)
    if POOLS[fields["pool_type"]] == "max_reduce":
        raise operation.refuse("the meaning of this pool is not published", "max, average")
    window, groups = _window(core, operation)
    result = places.output_image(core, operation, groups).rows
    return Footprint(joined([window]), joined([result]))


def _alu(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    mode = ALU_MODES[fields["exec_mode"]]
    _at_once(operation, core.misc_rows)
    _channels(core, operation)
    if mode in ("max_reduce", "depthwise_16_bit"):
        raise operation.refuse(f"exec_mode={mode} is not executed")
    if fields["kernel_d"] != 1:
        raise operation.refuse("kernel_d other than 1 is not executed")
    if mode in ("prelu", "leaky", "hard_sigmoid"):
        if any(fields[name] != 1 for name in ("kernel_h", "kernel_w", "stride_h", "stride_w")):
            raise operation.refuse(f"{mode} has a kernel and strides of 1")
        if mode == "hard_sigmoid" and fields["shift_bias"] > MOST_SHIFT_BIAS:
            raise operation.refuse(f"shift_bias={fields['shift_bias']}", f"0 to {MOST_SHIFT_BIAS}")
    window, groups = _window(core, operation)
    reads = [window]
    if mode in ("depthwise", "depthwise_no_bias"):
        _sums(operation)
        reads.append(depthwise_weights(core, operation))
    if mode == "depthwise":
        reads.append(places.block(core, "bias", fields["bank_addr_bias"], groups))
    if mode == "prelu":
        reads.append(places.block(core, "depthwise", fields["bank_addr_weights"], groups))
    result = places.output_image(core, operation, groups).rows
    return Footprint(joined(reads), joined([result]))


def _elew(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    _at_once(operation, core.elementwise_rows)
    if fields["elew_type"] and fields["num"] != 2:
        raise operation.refuse(f"multiplies {fields['num']} operands", "it multiplies two")
    if any(read.get("share_pp", 0) for read in operation.operands):
        raise operation.refuse("the meaning of share_pp is not published")
    operands, result = places.elementwise_images(core, operation)
    return Footprint(joined([read.rows for read in operands]), joined([result.rows]))


_COMPUTES = frozenset(("conv", "dwconv", "pool", "alu", "elew"))

_FOOTPRINTS: dict[str, Callable[[Core, Operation], Footprint]] = {
    "load": _load,
    "save": _save,
    "conv": _conv,
    "dwconv": _depthwise,
    "pool": _pool,
    "alu": _alu,
    "elew": _elew,
}
