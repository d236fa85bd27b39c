"""The functional simulator: operations on banks and main memory, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.errors import refuse
from tilewright.numerics import power_of_two as numbers
from tilewright.numerics.poison import spoil
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.footprint import Footprint, Footprints, Span, augmented
from tilewright.targets.dpu.formats import ACTIVATIONS, ALU_MODES, ELEMENTWISE, POOLS
from tilewright.targets.dpu.operations import Operation
from tilewright.targets.dpu.places import Rows
from tilewright.targets.dpu.tokens import execution_order

Bytes = NDArray[np.int8]


@dataclass
class State:
    """Banks of a core and the memories that its base registers point to."""

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
        self.footprints = Footprints(self.core)
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
    touched = state.footprints.of(operation)
    executor = _EXECUTORS.get(operation.mnemonic)
    if executor is not None:
        executor(state, operation, touched)


def _load(state: State, operation: Operation, touched: Footprint) -> None:
    fields, core = operation.fields, state.core
    if touched.loads is None:
        value = np.uint8(fields["const_value"]).view(np.int8)
        runs = np.full((fields["length"], fields["channel"]), value, np.int8)
    else:
        runs = state.memory(operation, touched.loads)
        if augmented(core, fields):
            runs = np.where(_kept(core, fields), runs, 0).astype(np.int8)
    rows = touched.result
    whole, rest = divmod(fields["channel"], core.channels)
    # One run after the other where they meet: the later one stays.
    meet = touched.writes.size != rows.size
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


def _save(state: State, operation: Operation, touched: Footprint) -> None:
    assert touched.stores is not None
    target = state.memory(operation, touched.stores)
    if not touched.operands:
        target[:] = np.uint8(operation.fields["const_value"]).view(np.int8)
        return
    (rows,) = touched.operands
    data = state.banks[rows].reshape(len(rows), -1)[:, : target.shape[1]]
    meet = touched.stores.stride < touched.stores.run
    for number in range(len(rows)) if meet else (slice(None),):
        target[number] = data[number]


def _taps(state: State, operation: Operation, touched: Footprint, dtype: DTypeLike = np.int64,
          padding: int = 0) -> list[NDArray[Any]]:  # fmt: skip
    """Per element of the kernel, row by row: what of the window meets it, [rows, length, c]."""
    fields = operation.fields
    height, width, groups = touched.window.shape
    window = np.full((height, width, groups * state.core.channels), padding, dtype)
    window[touched.inside] = _pixels(state, touched.window[touched.inside])
    if fields.get("channel_offset", 0):
        window[:, :, -fields["channel_offset"] :] = 0
    rows, length = fields["valid_pixel_parallel"], fields["length"]
    down, along = fields["stride_h"], fields["stride_w"]
    return [
        window[i : i + (rows - 1) * down + 1 : down, j : j + (length - 1) * along + 1 : along]
        for i in range(fields["kernel_h"])
        for j in range(fields["kernel_w"])
    ]


def _write(state: State, touched: Footprint, values: Bytes) -> None:
    """Write [rows, length, channels] results, row by row where their places meet: the later stays.

    (NumPy does not promise which of several values for one place it keeps.)
    """
    cells = values.reshape(*touched.result.shape, state.core.channels)
    if touched.writes.size == touched.result.size:
        state.banks[touched.result] = cells
        return
    flat = cells.reshape(-1, state.core.channels)
    for place, cell in zip(touched.result.ravel().tolist(), flat, strict=True):
        state.banks[place] = cell


def _requantised(
    state: State, operation: Operation, touched: Footprint, total: NDArray[np.int64]
) -> Bytes:
    """Sums with the operation's bias, activation and shifts."""
    fields = operation.fields
    bias, activation = state.banks[touched.bias].ravel(), ACTIVATIONS[fields["act_type"]]
    return numbers.requantise(total, bias, fields["shift_bias"], fields["shift_cut"], activation)


def _conv(state: State, operation: Operation, touched: Footprint) -> None:
    # Sums of int8 products stay below 2**53: float64 has them exactly, and multiplies faster.
    taps = _taps(state, operation, touched, np.float64)
    kernels = state.banks[touched.weights].reshape(len(touched.weights), len(taps), -1)
    weights = kernels.astype(np.float64)
    total = sum(tap @ weights[:, number].T for number, tap in enumerate(taps))
    total = np.asarray(total).astype(np.int64)
    _write(state, touched, _requantised(state, operation, touched, total))


def _depthwise_total(state: State, operation: Operation, touched: Footprint) -> NDArray[np.int64]:
    taps = _taps(state, operation, touched)
    weights = state.banks[touched.weights].astype(np.int64)
    return np.add.reduce([tap * row.ravel() for tap, row in zip(taps, weights, strict=True)])


def _depthwise(state: State, operation: Operation, touched: Footprint) -> None:
    total = _depthwise_total(state, operation, touched)
    _write(state, touched, _requantised(state, operation, touched, total))


def signed_shift(stored: int) -> int:
    """Decode a shift: below 8 to the left; from 8 on to the right by the value less 8, given as
    negative."""
    return stored if stored < 8 else 8 - stored


def _maximum(state: State, operation: Operation, touched: Footprint, shift: int) -> Bytes:
    taps = _taps(state, operation, touched, np.int8, -128)
    return numbers.scaled(np.maximum.reduce(taps), shift)


def _pool(state: State, operation: Operation, touched: Footprint) -> None:
    fields = operation.fields
    shift = signed_shift(fields["shift_cut"])
    if POOLS[fields["pool_type"]] == "max":
        result = _maximum(state, operation, touched, shift)
    else:
        total = np.add.reduce(_taps(state, operation, touched))
        result = numbers.average(total, (fields["kernel_h"], fields["kernel_w"]), shift)
    _write(state, touched, result)


def _alu(state: State, operation: Operation, touched: Footprint) -> None:
    fields = operation.fields
    mode = ALU_MODES[fields["exec_mode"]]
    factor = int(np.uint8(fields["multi_factor"]).view(np.int8))
    shift = signed_shift(fields["shift_cut"])
    if mode == "depthwise":
        return _depthwise(state, operation, touched)
    if mode == "depthwise_no_bias":
        total = _depthwise_total(state, operation, touched)
        activation = ACTIVATIONS[fields["act_type"]]
        result = numbers.requantise_without_bias(total, fields["shift_cut"], activation)
    elif mode == "max":
        result = _maximum(state, operation, touched, shift)
    elif mode == "average":
        total = np.add.reduce(_taps(state, operation, touched))
        result = numbers.scaled(total * factor, shift)
    else:
        (pixels,) = _taps(state, operation, touched, np.int8)
        if mode == "hard_sigmoid":
            result = numbers.hard_sigmoid(pixels, fields["shift_bias"], fields["shift_cut"])
        else:
            slope = state.banks[touched.weights].ravel() if mode == "prelu" else factor
            result = numbers.sloped(pixels, slope, fields["shift_prelu_n"], fields["shift_prelu_p"])
    _write(state, touched, result)
    return None


def _elew(state: State, operation: Operation, touched: Footprint) -> None:
    fields = operation.fields
    result = numbers.elementwise(
        [_pixels(state, rows) for rows in touched.operands],
        [read["shift_read"] for read in operation.operands],
        signed_shift(fields["shift_write"]),
        multiply=ELEMENTWISE[fields["elew_type"]] == "multiply",
        relu=ACTIVATIONS[fields["act_type"]] == "relu",
    )
    _write(state, touched, result)


def _pixels(state: State, rows: Rows) -> Bytes:
    """Return the pixels of rows of banks, as [rows, length, channels]."""
    return state.banks[rows].reshape(*rows.shape[:2], rows.shape[2] * state.core.channels)


_EXECUTORS: dict[str, Callable[[State, Operation, Footprint], None]] = {
    "load": _load,
    "save": _save,
    "conv": _conv,
    "dwconv": _depthwise,
    "pool": _pool,
    "alu": _alu,
    "elew": _elew,
}
