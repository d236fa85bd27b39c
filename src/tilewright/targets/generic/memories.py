"""The memories of a simulated machine: byte arrays, and views of strided boxes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.numerics.poison import spoil

MAX_ELEMENTS = 1 << 26
"""Elements of one view; more is no sensible instruction."""

MAX_BYTES = 1 << 33
"""Bytes of all memories on the chip that are simulated."""

Segment = tuple[int, NDArray[np.uint8]]
"""Start address and bytes of one part of main memory."""


class Memories:
    """All memories of one machine; main memory, and others that hold values, are lists of segments
    in ascending order."""

    def __init__(
        self, machine: Machine, main: Sequence[Segment], constants: Sequence[Segment] = ()
    ) -> None:
        self.main = machine.main
        self.segments: dict[str, list[Segment]] = {machine.home(constant=True): list(constants)}
        self.segments.setdefault(machine.main, []).extend(main)
        for segments in self.segments.values():
            segments.sort(key=lambda segment: segment[0])
        on_chip = sum(m.bytes or 0 for m in machine.memories if not m.holds)
        if on_chip > MAX_BYTES:
            raise refuse(
                "simulate-memory", f"{machine.name} has {on_chip} bytes on the chip to simulate"
            )
        self.local: dict[str, NDArray[np.uint8]] = {
            memory.name: np.empty(memory.bytes, np.uint8)
            for memory in machine.memories
            if memory.name not in machine.homes and memory.bytes is not None
        }
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin a run: no memory on the chip holds anything, as ``spoil`` has it."""
        for data in self.local.values():
            spoil(data, seed)

    def sizes(self) -> Mapping[str, int]:
        """Bytes of each memory; of those that hold values, the end of the last segment."""
        ends = {
            name: max((start + data.size for start, data in segments), default=0)
            for name, segments in self.segments.items()
        }
        return {**{name: data.size for name, data in self.local.items()}, **ends}

    def view(
        self,
        memory: str,
        address: int,
        dtype: Any,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> NDArray[Any]:
        """The strided box at a byte address, as an array that shares memory; strides in bytes.

        Raises TilewrightError (``simulate-bounds``) if the box is not inside the memory.
        """
        if prod(shape) > MAX_ELEMENTS:
            raise refuse("simulate-size", f"an instruction reaches {tuple(shape)} elements")
        data, offset = self.local.get(memory), address
        if data is None:
            segments = self.segments.get(memory) or self.segments[self.main]
            start, data = segments[0]
            for start_, data_ in segments:
                if start_ <= address:
                    start, data = start_, data_
            offset = address - start
        try:
            return np.ndarray(shape, dtype, data.data, offset, strides)
        except (ValueError, TypeError) as error:
            raise refuse(
                "simulate-bounds",
                f"{tuple(shape)} elements with strides {tuple(strides)} at {memory}:{address:#x} "
                f"do not lie inside {memory}",
            ) from error
