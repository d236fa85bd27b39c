"""The functional simulator: operations on banks and main memory, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.numerics import power_of_two as numbers
from tilewright.numerics.poison import spoil
from tilewright.targets.dpu import places
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.footprint import (
    CONSTANT,
    Span,
    augmented,
    depthwise_weights,
    footprint,
)
from tilewright.targets.dpu.formats import ACTIVATIONS, ALU_MODES, ELEMENTWISE, POOLS
from tilewright.targets.dpu.operations import Operation
from tilewright.targets.dpu.places import Rows
from tilewright.targets.dpu.tokens import execution_order

Bytes = NDArray[np.int8]


@dataclass
class State:
    """Banks of a core and the memories behind its base registers."""

    core: Core
    registers: Mapping[int, Bytes]
    """Register -> bytes; SAVEs write into them."""
    seed: int = 0
    """Chooses what the banks hold before anybody writes them (numerics/poison.py)."""
    banks: Bytes = field(init=False)
    """[banks * DEPTH, channels]: all bank rows by number."""

    def __post_init__(self) -> None:
        memory = np.empty(self.core.banks * DEPTH * self.core.channels, np.uint8)
        spoil(memory, self.seed)
        self.banks = memory.view(np.int8).reshape(-1, self.core.channels)

    def memory(self, operation: Operation, span: Span) -> Bytes:
        """[runs, bytes]: a view of a span; refuses (``program-bounds``) what lies beyond."""
        memory = self.registers.get(span.register)
        size = 0 if memory is None else memory.size
        if memory is None or span.end > size:
            raise refuse(
                "program-bounds",
                f"touches byte {span.end - 1} after register {span.register}, which has {size}",
                operation.name,
            )
        return np.lib.stride_tricks.as_strided(
            memory[span.address :], (span.count, span.run), (span.stride, 1)
        )


def run(core: Core, operations: Sequence[Operation], registers: Mapping[int, Bytes]) -> State:
    """Execute a program; SAVEs write into ``registers`` in place.

    Operations run one by one in an order that the tokens allow. Whether every such order gives the
    same result is what the race check says, not this. Raises TilewrightError (``program-...``);
    ``program-deadlock`` where tokens are missing.
    """
    for register, memory in registers.items():
        if memory.dtype != np.int8 or memory.ndim != 1 or not memory.flags.c_contiguous:
            raise ValueError(f"register {register} is no contiguous array of int8")
    state = State(core, registers)
    for number in execution_order(operations):
        execute(state, operations[number])
    return state


def execute(state: State, operation: Operation) -> None:
    """Execute one operation; refuses what ``footprint`` refuses, before anything is written."""
    touched = footprint(state.core, operation)
    executor = _EXECUTORS.get(operation.mnemonic)
    if executor is not None:
        executor(state, operation, touched.loads or touched.stores)


def _load(state: State, operation: Operation, span: Span | None) -> None:
    fields, core = operation.fields, state.core
    if fields.get("broadcast", 0) == CONSTANT:
        value = np.uint8(fields["const_value"]).view(np.int8)
        runs = np.full((fields["length"], fields["channel"]), value, np.int8)
    else:
        assert span is not None
        runs = state.memory(operation, span)
        if augmented(core, fields):
            runs = np.where(_kept(core, fields), runs, 0).astype(np.int8)
    rows = places.transfer_rows(core, operation)
    whole, rest = divmod(fields["channel"], core.channels)
    # One run after the other where they meet: the later one stays.
    meet = np.unique(rows).size != rows.size
    for part in range(len(rows)) if meet else (slice(None),):
        target, data = np.atleast_2d(rows[part]), np.atleast_2d(runs[part])
        if whole:
            filled = data[:, : whole * core.channels]
            state.banks[target[:, :whole]] = filled.reshape(len(data), whole, core.channels)
        if rest:
            state.banks[target[:, whole], :rest] = data[:, whole * core.channels :]


def _kept(core: Core, fields: Mapping[str, int]) -> NDArray[np.bool_]:
    """[runs, bytes]: what channel augmentation does not replace by 0."""
    run = np.arange(fields["length"])[:, None]
    byte = np.arange(fields["channel"])
    begins = fields["pad_start"] - run * fields["jump_read"]
    last = run - (fields["length"] - fields["pad_idx"])
    whole = -(-fields["channel"] // core.channels) * core.channels
    ends = np.where(last >= 0, whole - fields["pad_end"] - fields["jump_read"] * last, whole)
    return (byte >= begins) & (byte < ends)


def _save(state: State, operation: Operation, span: Span | None) -> None:
    fields = operation.fields
    assert span is not None
    target = state.memory(operation, span)
    if fields.get("const_en", 0):
        target[:] = np.uint8(fields["const_value"]).view(np.int8)
        return
    rows = places.transfer_rows(state.core, operation)
    data = state.banks[rows].reshape(len(rows), -1)[:, : span.run]
    for number in range(len(rows)) if span.stride < span.run else (slice(None),):
        target[number] = data[number]


def _window(state: State, operation: Operation, padding: int) -> Bytes:
    """[height, width, channels] that an operation reads, with its padding."""
    image = places.input_image(state.core, operation)
    inside = places.padding_of(operation).inside(len(image.bank), image.width)
    shape = (len(image.bank), image.width, image.groups * state.core.channels)
    window = np.full(shape, padding, np.int8)
    rows = image.part(*inside)
    window[inside] = _pixels(state, rows)
    offset = operation.fields.get("channel_offset", 0)
    if offset:
        window[:, :, -offset:] = 0
    return window


def _taps(operation: Operation, window: NDArray[Any]) -> list[NDArray[Any]]:
    """Per element of the kernel, row by row: what of the window meets it, [rows, length, c]."""
    fields = operation.fields
    rows, length = fields["valid_pixel_parallel"], fields["length"]
    down, along = fields["stride_h"], fields["stride_w"]
    return [
        window[i : i + (rows - 1) * down + 1 : down, j : j + (length - 1) * along + 1 : along]
        for i in range(fields["kernel_h"])
        for j in range(fields["kernel_w"])
    ]


def _write(state: State, image: places.Image, values: Bytes) -> None:
    """Write [rows, length, channels] results, row by row where their places meet: the later stays.

    (NumPy does not promise which of several values for one place it keeps.)
    """
    cells = values.reshape(*image.rows.shape, state.core.channels)
    meet = np.unique(image.rows).size != image.rows.size
    if meet:
        for place, cell in zip(
            image.rows.ravel().tolist(), cells.reshape(-1, state.core.channels), strict=True
        ):
            state.banks[place] = cell
    else:
        state.banks[image.rows] = cells


def _conv(state: State, operation: Operation, span: Span | None) -> None:
    fields, core = operation.fields, state.core
    # Sums of int8 products stay below 2**53: float64 has them exactly, and multiplies faster.
    window = _window(state, operation, 0).astype(np.float64)
    taps = _taps(operation, window)
    groups = fields["channel_group"]
    rows = places.block(core, "weight", fields["bank_addr_weights"], len(taps) * groups)
    weights = state.banks[rows].reshape(core.channels, len(taps), -1).astype(np.float64)
    total = np.zeros((fields["valid_pixel_parallel"], fields["length"], core.channels))
    for number, tap in enumerate(taps):
        total += tap @ weights[:, number].T
    bias = state.banks[places.block(core, "bias", fields["bank_addr_bias"], 1)].ravel()
    result = numbers.requantise(
        total.astype(np.int64),
        bias,
        fields["shift_bias"],
        fields["shift_cut"],
        ACTIVATIONS[fields["act_type"]],
    )
    _write(state, places.output_image(core, operation, 1), result)


def _depthwise_total(state: State, operation: Operation) -> NDArray[np.int64]:
    taps = _taps(operation, _window(state, operation, 0).astype(np.int64))
    weights = state.banks[depthwise_weights(state.core, operation)].astype(np.int64)
    return sum(
        (tap * row.ravel() for tap, row in zip(taps, weights, strict=True)),
        start=np.zeros_like(taps[0]),
    )


def _bias_of_groups(state: State, operation: Operation) -> Bytes:
    fields = operation.fields
    rows = places.block(state.core, "bias", fields["bank_addr_bias"], fields["channel_group"])
    return state.banks[rows].ravel()


def _depthwise(state: State, operation: Operation, span: Span | None) -> None:
    fields = operation.fields
    result = numbers.requantise(
        _depthwise_total(state, operation),
        _bias_of_groups(state, operation),
        fields["shift_bias"],
        fields["shift_cut"],
        ACTIVATIONS[fields["act_type"]],
    )
    _write(state, places.output_image(state.core, operation, fields["channel_group"]), result)


def signed_shift(stored: int) -> int:
    """A left shift below 8; from 8 upwards a right shift by what is above 8, as a negative one."""
    return stored if stored < 8 else 8 - stored


def _pool(state: State, operation: Operation, span: Span | None) -> None:
    fields = operation.fields
    shift = signed_shift(fields["shift_cut"])
    if POOLS[fields["pool_type"]] == "max":
        taps = _taps(operation, _window(state, operation, -128))
        result = numbers.scaled(np.maximum.reduce(taps), shift)
    else:
        taps = _taps(operation, _window(state, operation, 0).astype(np.int64))
        kernel = (fields["kernel_h"], fields["kernel_w"])
        result = numbers.average(np.add.reduce(taps), kernel, shift)
    _write(state, places.output_image(state.core, operation, fields["channel_group"]), result)


def _alu(state: State, operation: Operation, span: Span | None) -> None:
    fields = operation.fields
    mode = ALU_MODES[fields["exec_mode"]]
    activation = ACTIVATIONS[fields["act_type"]]
    factor = int(np.uint8(fields["multi_factor"]).view(np.int8))
    shift = signed_shift(fields["shift_cut"])
    if mode == "depthwise":
        return _depthwise(state, operation, span)
    if mode == "depthwise_no_bias":
        total = _depthwise_total(state, operation)
        result = numbers.requantise_without_bias(total, fields["shift_cut"], activation)
    elif mode == "max":
        taps = _taps(operation, _window(state, operation, -128))
        result = numbers.scaled(np.maximum.reduce(taps), shift)
    elif mode == "average":
        taps = _taps(operation, _window(state, operation, 0).astype(np.int64))
        result = numbers.scaled(np.add.reduce(taps) * factor, shift)
    else:
        pixels = _window(state, operation, 0)
        if mode == "hard_sigmoid":
            result = numbers.hard_sigmoid(pixels, fields["shift_bias"], fields["shift_cut"])
        else:
            slope: Bytes | int = factor
            if mode == "prelu":
                rows = places.block(
                    state.core, "depthwise", fields["bank_addr_weights"], fields["channel_group"]
                )
                slope = state.banks[rows].ravel()
            result = numbers.sloped(pixels, slope, fields["shift_prelu_n"], fields["shift_prelu_p"])
    _write(state, places.output_image(state.core, operation, fields["channel_group"]), result)
    return None


def _elew(state: State, operation: Operation, span: Span | None) -> None:
    fields = operation.fields
    operands, image = places.elementwise_images(state.core, operation)
    result = numbers.elementwise(
        [_pixels(state, read.rows) for read in operands],
        [read["shift_read"] for read in operation.operands],
        signed_shift(fields["shift_write"]),
        multiply=ELEMENTWISE[fields["elew_type"]] == "multiply",
        relu=ACTIVATIONS[fields["act_type"]] == "relu",
    )
    _write(state, image, result)


def _pixels(state: State, rows: Rows) -> Bytes:
    """Return the pixels of rows of banks, as [rows, length, channels]."""
    return state.banks[rows].reshape(*rows.shape[:2], rows.shape[2] * state.core.channels)


_EXECUTORS: dict[str, Callable[[State, Operation, Span | None], None]] = {
    "load": _load,
    "save": _save,
    "conv": _conv,
    "dwconv": _depthwise,
    "pool": _pool,
    "alu": _alu,
    "elew": _elew,
}
