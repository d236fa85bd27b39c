"""A captured graph compiled for the inputs at hand: shapes, numbers and parameters fixed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.compiler import api as compiling
from tilewright.frontends.torch import OpenedTorch
from tilewright.frontends.torch.library import torch_library
from tilewright.frontends.torch.reasons import told
from tilewright.frontends.torch.tensors import array_of, tensor_of
from tilewright.graph.dialect import network_of


class Specialised:
    """An executable of a graph for one set of shapes; raises TilewrightError where there can be
    none."""

    def __init__(
        self,
        graph: Any,
        inputs: Sequence[Any],
        constant: Sequence[int],
        options: Mapping[str, Any],
        by_values: bool,
    ) -> None:
        torch = torch_library()
        self._constant = constant
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        fixed = {number: inputs[number] for number in constant}
        self._free = [
            number
            for number, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and number not in fixed
        ]
        for number, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                fixed[number] = value
        samples = [inputs[number] for number in self._free]
        arrays = [array_of(sample, "input") for sample in samples]
        _ = [array_of(tensor, "parameter") for tensor in tensors]
        results: list[Any] = []
        module = _bound(graph, fixed, self._free, len(inputs), results)
        with torch.inference_mode(False), torch.no_grad():
            program = told(
                "torch-export", "graph", "torch.export cannot capture it",
                lambda: torch.export.export(module, tuple(map(_plain, samples)), strict=False),
            )  # fmt: skip
            imported = OpenedTorch(program).load()
        self._watched = Watched([inputs[number] for number in constant], by_values)
        tensor = torch.Tensor
        self._others = {n: v for n, v in enumerate(results) if not isinstance(v, tensor)}
        self._count = len(results)
        self._strides = _output_strides(program)
        self._names = [name for name, _ in network_of(imported.module).inputs]
        sample = dict(zip(self._names, arrays, strict=True))
        self._executable = compiling.compile(imported, calibration=[sample], **options)
        self._executable.model = None  # Nothing here is checked, and the import would stay.

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Return True if the parameters are those that it was compiled with."""
        return self._watched.unchanged([inputs[number] for number in self._constant])

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Compute the graph's outputs from its inputs."""
        arrays = [array_of(inputs[number], "input") for number in self._free]
        outputs = self._executable.run(dict(zip(self._names, arrays, strict=True)))
        tensors = [
            _with_strides(tensor_of(array), strides)
            for array, strides in zip(outputs.values(), self._strides, strict=True)
        ]
        ordered = iter(tensors)
        return [
            self._others[number] if number in self._others else next(ordered)
            for number in range(self._count)
        ]


def _bound(
    graph: Any, fixed: Mapping[int, Any], free: Sequence[int], count: int, results: list[Any]
) -> Any:
    """The graph as a module of its free inputs that returns its tensors alone.

    What the graph itself returned is left in ``results``: torch.export takes back what a module
    keeps of a run.
    """
    torch = torch_library()

    class Bound(torch.nn.Module):
        """The graph with its fixed inputs as buffers."""

        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for number, value in fixed.items():
                if isinstance(value, torch.Tensor):
                    self.register_buffer(f"fixed_{number}", _plain(value))

        def forward(self, *tensors: Any) -> Any:
            values: list[Any] = [None] * count
            for number, value in fixed.items():
                stored = isinstance(value, torch.Tensor)
                values[number] = getattr(self, f"fixed_{number}") if stored else value
            for number, tensor in zip(free, tensors, strict=True):
                values[number] = tensor
            results[:] = self.graph(*values)
            return tuple(value for value in results if isinstance(value, torch.Tensor))

    return Bound().eval()


def _plain(tensor: Any) -> Any:
    """A tensor that torch.export takes: no parameter, and not made in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _output_strides(program: Any) -> list[tuple[int, ...]]:
    """Strides that the graph's outputs have in PyTorch, which the code after it may count on."""
    (output,) = program.graph.find_nodes(op="output")
    return [tuple(node.meta["val"].stride()) for node in output.args[0]]


def _with_strides(tensor: Any, strides: tuple[int, ...]) -> Any:
    """The tensor with these strides; elements along an axis of stride 0 are stored once."""
    if tensor.stride() == strides or tensor.numel() == 0:
        return tensor
    stored = tensor
    for axis, stride in enumerate(strides):
        stored = stored.narrow(axis, 0, 1) if stride == 0 else stored
    torch = torch_library()
    strided = torch.empty_strided(stored.shape, strides, dtype=tensor.dtype)
    return strided.copy_(stored).expand(tensor.shape)


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
