"""Executables that take and give tensors instead of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import refuse
from tilewright.frontends.torch.tensors import array_of, tensor_of
from tilewright.runtime import Executable


def on_tensors(executable: Executable) -> Callable[..., Any]:
    """A function that runs an executable on tensors, positional in its inputs' order or by name.

    It returns a tensor, or a tuple of them in the order of ``executable.outputs`` where there are
    several. It computes no gradients. It raises TilewrightError (``input-``) for inputs that
    do not fit.
    """
    names = [info.name for info in executable.inputs]

    def call(*tensors: Any, **named: Any) -> Any:
        if len(tensors) > len(names):
            reason = f"{len(tensors)} tensors are given to a model of {len(names)} inputs"
            raise refuse("input-name", reason)
        inputs = dict(zip(names, tensors, strict=False)) | named
        arrays = {name: array_of(tensor, f"input {name!r}") for name, tensor in inputs.items()}
        results = [tensor_of(array) for array in executable.run(arrays).values()]
        return results[0] if len(results) == 1 else tuple(results)

    return call
