"""Notice that parameters have changed since they were compiled into a package."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tilewright.frontends.torch.library import torch_library


class Watched:
    """Tensors as they were: the same objects, at the same place, of the same version.

    Every operation of PyTorch that writes to a tensor raises its version. Writes through ``.data``
    or an array that shares its memory do not; ``by_values`` compares the values themselves with a
    copy, as is always done for tensors without versions (those made in inference mode).
    """

    def __init__(self, tensors: Sequence[Any], by_values: bool) -> None:
        self._states = [_state(tensor) for tensor in tensors]
        self._objects = [weakref.ref(tensor) for tensor in tensors]
        self._copies = [
            tensor.detach().clone() if by_values or tensor.is_inference() else None
            for tensor in tensors
        ]

    def unchanged(self, tensors: Sequence[Any]) -> bool:
        """Return True if these are the same tensors with the same values."""
        equal = torch_library().equal
        for tensor, state, kept, copy in zip(
            tensors, self._states, self._objects, self._copies, strict=True
        ):
            if kept() is not tensor or _state(tensor) != state:
                return False
            if copy is not None and not equal(tensor, copy):
                return False
        return True


def _state(tensor: Any) -> tuple[int, int]:
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version
