"""The bank rows and bytes of main memory that an operation touches, and its refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.targets.dpu import places
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.formats import ACTIVATIONS, ALU_MODES, POOLS
from tilewright.targets.dpu.operations import Operation
from tilewright.targets.dpu.places import Rows

SUMS = ("none", "relu", "leaky", "relu6")
"""Activations that sums of products can have."""

MOST_SHIFT_BIAS = 20
MOST_STRIDE = 8
"""The largest stride of a convolution, in both directions."""

CONSTANT = 7
"""``broadcast`` of a LOAD that fills with a constant."""


@dataclass(frozen=True)
class Span:
    """Bytes addressed from a base register: ``count`` runs of ``run`` bytes, ``stride`` apart."""

    register: int
    address: int
    run: int
    count: int
    stride: int

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.address + (self.count - 1) * self.stride + self.run


NONE: Rows = np.zeros(0, np.int64)
"""An empty set of bank rows."""


def _none() -> Rows:
    return NONE


@dataclass(frozen=True)
class Footprint:
    """The bank rows of an operation's data, and at most one span of main memory."""

    result: Rows = field(default_factory=_none)
    """[rows, length, groups], or [runs, rows] of a LOAD."""
    window: Rows = field(default_factory=_none)
    """[rows, width, groups]: of windows that move over an image, padding included."""
    inside: tuple[slice, slice] = (slice(0), slice(0))
    """The rows and columns of the window that are not padding."""
    weights: Rows = field(default_factory=_none)
    bias: Rows = field(default_factory=_none)
    operands: tuple[Rows, ...] = ()
    """The operands of an ELEW, or the rows that a SAVE reads."""
    loads: Span | None = None
    stores: Span | None = None

    @cached_property
    def reads(self) -> Rows:
        """The bank rows that are read, ascending, each once; those of padding are not."""
        window = self.window[self.inside] if self.window.size else self.window
        parts = (window, self.weights, self.bias, *self.operands)
        return np.unique(np.concatenate([part.ravel() for part in parts]))

    @cached_property
    def writes(self) -> Rows:
        """The bank rows that are written, ascending, each once."""
        return np.unique(self.result)


def footprint(core: Core, operation: Operation) -> Footprint:
    """Return the bank rows and bytes of main memory that an operation touches.

    Raises TilewrightError (``program-field``) for fields that the core cannot execute, or whose
    meaning is not published.
    """
    touched = _FOOTPRINTS.get(operation.mnemonic)
    return Footprint() if touched is None else touched(core, operation)


class Footprints:
    """Footprints of a core's operations; those of computes are kept, as tiles repeat them."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._known: dict[tuple[object, ...], Footprint] = {}

    def of(self, operation: Operation) -> Footprint:
        """Return the result of ``footprint``, which is kept for compute operations."""
        if operation.mnemonic in ("load", "save"):
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


def _transfer(core: Core, operation: Operation, inside: str, outside: str) -> tuple[Rows, Span]:
    """[runs, rows]: the bank rows of a LOAD or a SAVE; and its bytes of main memory. The fields
    ``inside`` and ``outside`` are the ways from run to run."""
    fields = operation.fields
    if fields["bank_id"] >= core.banks:
        raise operation.refuse(f"there is no bank {fields['bank_id']}", f"0 to {core.banks - 1}")
    run, count = fields["channel"], fields["length"]
    rows = places.scattered(
        fields["bank_addr"], count, fields[inside], -(-run // core.channels), fields["bank_id"]
    )
    return rows, Span(fields["reg_id"], fields["ddr_addr"], run, count, fields[outside])


def _load(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    rows, span = _transfer(core, operation, "jump_write", "jump_read")
    if fields["mode_avg"]:
        raise operation.refuse("it subtracts a mean, from a bank that this core does not have")
    if fields.get("broadcast", 0) == CONSTANT:
        return Footprint(rows)
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
    return Footprint(rows, loads=span)


def augmented(core: Core, fields: Mapping[str, int]) -> bool:
    """Return True if the runs of a LOAD overlap, so that its padding fields count."""
    return fields["jump_read"] <= fields["channel"] <= 2 * core.channels


def _save(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    rows, span = _transfer(core, operation, "jump_read", "jump_write")
    if fields.get("argmax", 0):
        raise operation.refuse("the meaning of argmax is not published")
    return Footprint(operands=() if fields.get("const_en", 0) else (rows,), stores=span)


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


def _conv(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    _at_once(operation, core.rows)
    _sums(operation)
    _channels(core, operation)
    if max(fields["stride_h"], fields["stride_w"]) > MOST_STRIDE:
        raise operation.refuse(f"the strides of a convolution are 1 to {MOST_STRIDE}")
    window, inside = places.window(core, operation)
    count = _weights(core, operation, fields["channel_group"])
    weights = places.block(core, "weight", fields["bank_addr_weights"], count)
    bias = places.block(core, "bias", fields["bank_addr_bias"], 1)
    return Footprint(places.results(core, operation, 1), window, inside, weights, bias)


def _by_channel(
    core: Core, operation: Operation, *, weights: Rows = NONE, bias: bool = False
) -> Footprint:
    """The footprint of an operation on windows that has a result for each channel."""
    fields = operation.fields
    groups = fields["channel_group"]
    window, inside = places.window(core, operation)
    biases = places.block(core, "bias", fields["bank_addr_bias"], groups) if bias else NONE
    return Footprint(places.results(core, operation, groups), window, inside, weights, biases)


def _depthwise(core: Core, operation: Operation) -> Footprint:
    _at_once(operation, core.misc_rows)
    _sums(operation)
    _channels(core, operation)
    return _by_channel(core, operation, weights=_depthwise_weights(core, operation), bias=True)


def _depthwise_weights(core: Core, operation: Operation) -> Rows:
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
    _at_once(operation, core.misc_rows)
    if POOLS[operation.fields["pool_type"]] == "max_reduce":
        raise operation.refuse("the meaning of this pool is not published", "max, average")
    return _by_channel(core, operation)


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
    weights = NONE
    if mode in ("depthwise", "depthwise_no_bias"):
        _sums(operation)
        weights = _depthwise_weights(core, operation)
    if mode == "prelu":
        count = fields["channel_group"]
        weights = places.block(core, "depthwise", fields["bank_addr_weights"], count)
    return _by_channel(core, operation, weights=weights, bias=mode == "depthwise")


def _elew(core: Core, operation: Operation) -> Footprint:
    fields = operation.fields
    _at_once(operation, core.elementwise_rows)
    if fields["elew_type"] and fields["num"] != 2:
        raise operation.refuse(f"multiplies {fields['num']} operands", "it multiplies two")
    if any(read.get("share_pp", 0) for read in operation.operands):
        raise operation.refuse("the meaning of share_pp is not published")

    def rows(of: Mapping[str, int], end: str, way: str) -> Rows:
        bank, address = of[f"bank_id_{end}"], of[f"bank_addr_{end}"]
        return places.row_a_bank(core, operation, bank, address, of[way], of[f"{way}_endl"])

    operands = tuple(rows(read, "in", "jump_read") for read in operation.operands)
    return Footprint(rows(fields, "out", "jump_write"), operands=operands)


_FOOTPRINTS: dict[str, Callable[[Core, Operation], Footprint]] = {
    "load": _load,
    "save": _save,
    "conv": _conv,
    "dwconv": _depthwise,
    "pool": _pool,
    "alu": _alu,
    "elew": _elew,
}
