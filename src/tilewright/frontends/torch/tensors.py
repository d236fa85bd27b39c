"""Tensors of PyTorch as arrays of NumPy and back, bfloat16 included."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.errors import refuse
from tilewright.frontends.torch.library import torch_library
from tilewright.ir.types import Array

_BRAIN = np.dtype(ml_dtypes.bfloat16)


def array_of(tensor: Any, where: str = "") -> Array:
    """A dense tensor in the processor's memory as an array that shares it where it can.

    Raises TilewrightError (``torch-tensor``) for tensors on other devices, sparse or quantised
    ones, and elements that NumPy lacks.
    """
    torch = torch_library()
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized:
        kind = f"{tensor.layout} on {tensor.device}".replace("torch.", "")
        raise refuse(
            "torch-tensor", f"a tensor that is {kind} is not read", where,
            "give dense tensors in the processor's memory",
        )  # fmt: skip
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(_BRAIN)
    try:
        return plain.numpy()
    except (TypeError, RuntimeError) as error:
        raise refuse("torch-tensor", f"elements of {plain.dtype} are not read", where) from error


def tensor_of(array: Array) -> Any:
    """An array as a tensor that shares its memory; the array must be writeable."""
    torch = torch_library()
    if array.dtype == _BRAIN:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
