"""Layouts: in which order, and cut into which blocks, a tensor's dims lie in memory.

A layout maps a logical index to a physical one, axis by axis: every physical axis is
``(logical index // divisor) % modulus`` of one logical axis. Permutation (NHWC), blocking
(NCHW16c) and the fractal forms of matrix units (``MN16n16m``) are all of this kind, and so is what
composing two of them gives.

**Notation.** An upper-case letter is a dim, or what is left of it after cutting off blocks; a
number and the lower-case letter is a block of it: ``NCHW16c`` is [n, c / 16, h, w, c % 16]. The
letters stand for the logical axes in this order: NC(D)HW for images, (G)OI(D)HW for weights, MN for
matrices, alphabetical for any others. ``""`` is row-major logical order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse

_LOGICAL_ORDERS = ("NCDHW", "GOIDHW", "MN", "MKN")
_PART = re.compile(r"([A-Z])|([1-9][0-9]{0,5})([a-z])")
_LONGEST = 64


@dataclass(frozen=True)
class Factor:
    """One physical axis: ``(index[axis] // divisor) % modulus``; modulus 0 means no modulus."""

    axis: int
    divisor: int = 1
    modulus: int = 0


@dataclass(frozen=True)
class Layout:
    """The physical axes of a tensor, outermost first. Compared by meaning, not by spelling."""

    rank: int
    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        for axis in range(self.rank):
            of_axis = sorted((f for f in self.factors if f.axis == axis), key=lambda f: f.divisor)
            step = 1
            for factor in of_axis:
                if factor.divisor != step or factor.modulus < 0:
                    raise refuse("layout-invalid", f"axis {axis} is not covered exactly once")
                step = factor.divisor * factor.modulus
            if not of_axis or step != 0:
                raise refuse("layout-invalid", f"axis {axis} is not covered exactly once")
        if any(not 0 <= factor.axis < self.rank for factor in self.factors):
            raise refuse("layout-invalid", f"an axis is outside rank {self.rank}")

    @classmethod
    @lru_cache(maxsize=4096)  # The planner asks for the same few thousands of times.
    def parse(cls, text: str, rank: int) -> Layout:
        """Read the notation above; raises TilewrightError when it does not fit ``rank``."""
        if not text:
            return cls(rank, tuple(Factor(axis) for axis in range(rank)))
        position, parts = 0, list[tuple[str, int]]()
        while position < len(text) <= _LONGEST:
            match = _PART.match(text, position)
            if match is None:
                break
            letter, size, block = match.group(1, 2, 3)
            parts.append((letter, 0) if letter else (block.upper(), int(size)))
            position = match.end()
        if position != len(text):
            raise refuse("layout-invalid", f"{text!r} is not a layout", help="such as NCHW16c")
        letters = [letter for letter, size in parts if not size]
        if len(set(letters)) != len(letters) or {letter for letter, _ in parts} != set(letters):
            raise refuse("layout-invalid", f"{text!r} must name every dim once in upper case")
        if len(letters) != rank:
            raise refuse("layout-rank", f"{text!r} has {len(letters)} dims, the tensor {rank}")
        order = next(
            (o for o in _LOGICAL_ORDERS if set(letters) <= set(o)), "".join(sorted(letters))
        )
        logical = [letter for letter in order if letter in letters]
        factors, below = list[Factor](), dict.fromkeys(letters, 1)
        for letter, size in reversed(parts):
            factors.append(Factor(logical.index(letter), below[letter], size))
            below[letter] *= size or 1
            if not size:
                below[letter] = 0
            elif below[letter] == 0:
                raise refuse("layout-invalid", f"{text!r} puts a block outside its own dim")
        return cls(rank, tuple(reversed(factors)))

    def __str__(self) -> str:
        letters = {1: "A", 2: "MN", 3: "CHW", 4: "NCHW", 5: "NCDHW"}.get(self.rank, "")
        letters = letters or "".join(chr(ord("A") + axis) for axis in range(self.rank))
        return "".join(
            f"{f.modulus}{letters[f.axis].lower()}" if f.modulus else letters[f.axis]
            for f in self.factors
        )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Indices of a whole block along each axis; 1 where it does not come in blocks."""
        moduli = [
            [part.modulus for part in self.factors if part.axis == axis and part.modulus]
            for axis in range(self.rank)
        ]
        return tuple(map(math.prod, moduli))

    @property
    def row_major(self) -> bool:
        """True if this is plain row-major logical order."""
        return self.factors == tuple(Factor(axis) for axis in range(self.rank))

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Extents of the physical axes; blocks that ``shape`` does not fill are padded."""
        self._check(shape)
        return tuple(f.modulus or -(-shape[f.axis] // f.divisor) for f in self.factors)

    def size(self, shape: Sequence[int]) -> int:
        """Elements in memory, padding included."""
        return math.prod(self.physical_shape(shape))

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Strides of the physical axes in elements, for a dense tensor."""
        strides, step = list[int](), 1
        for extent in reversed(self.physical_shape(shape)):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def physical_index(self, index: Sequence[int]) -> tuple[int, ...]:
        """The physical index of a logical one."""
        self._check(index)
        digits = (index[f.axis] // f.divisor for f in self.factors)
        return tuple(
            d % f.modulus if f.modulus else d for d, f in zip(digits, self.factors, strict=True)
        )

    def offset(
        self, index: Sequence[int], shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> int:
        """Elements from the tensor's start to a logical index; ``strides`` as ``strides`` gives."""
        steps = self.strides(shape) if strides is None else strides
        return sum(i * step for i, step in zip(self.physical_index(index), steps, strict=True))

    def pack(self, array: NDArray[Any]) -> NDArray[Any]:
        """The physical array of a logical one, dense; padding is zero."""
        split, order = self._split(array.shape)
        padded = [math.prod(group) for group in split]
        widths = [(0, big - small) for big, small in zip(padded, array.shape, strict=True)]
        if any(after for _, after in widths):
            array = np.pad(array, widths)
        flat = array.reshape([extent for group in split for extent in group])
        return np.asarray(flat.transpose(order), order="C")

    def unpack(self, physical: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """The logical array of ``shape`` of a physical one; padding is dropped."""
        if tuple(physical.shape) != self.physical_shape(shape):
            raise refuse("layout-shape", f"{physical.shape} is not the physical shape of {shape}")
        split, order = self._split(shape)
        flat = physical.transpose(np.argsort(order))
        padded = flat.reshape([math.prod(group) for group in split])
        return np.asarray(padded[tuple(slice(extent) for extent in shape)], order="C")

    def then(self, outer: Layout) -> Layout:
        """Lay the physical tensor of this layout out again by ``outer``.

        Raises TilewrightError where ``outer`` cuts a block into parts that do not divide it.
        """
        if outer.rank != len(self.factors):
            raise refuse("layout-rank", f"{outer} is not of rank {len(self.factors)}")
        factors = list[Factor]()
        for cut in outer.factors:
            inner = self.factors[cut.axis]
            modulus = cut.modulus
            if inner.modulus and not modulus:
                modulus, left = divmod(inner.modulus, cut.divisor)
                if left:
                    reason = f"blocks of {inner.modulus} are not cut evenly into {cut.divisor}"
                    raise refuse("layout-invalid", reason)
                if modulus == 1:
                    continue
            factors.append(Factor(inner.axis, inner.divisor * cut.divisor, modulus))
        return Layout(self.rank, tuple(factors))

    def _split(self, shape: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        """Per logical axis the extents of its factors, outermost first; and which of those parts,
        counted through all axes, each physical axis is."""
        self._check(shape)
        extents = self.physical_shape(shape)
        split, order, count = list[list[int]](), [0] * len(self.factors), 0
        for axis in range(self.rank):
            of_axis = [i for i, f in enumerate(self.factors) if f.axis == axis]
            of_axis.sort(key=lambda i: -self.factors[i].divisor)
            split.append([extents[i] for i in of_axis])
            for i in of_axis:
                order[i] = count
                count += 1
        return split, order

    def _check(self, shape: Sequence[int]) -> None:
        if len(shape) != self.rank:
            raise refuse("layout-rank", f"the layout has rank {self.rank}, the tensor {len(shape)}")
