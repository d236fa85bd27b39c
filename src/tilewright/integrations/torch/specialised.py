"""A captured graph compiled for the inputs at hand: numbers and parameters fixed, and shapes too,
or all sizes up to some that PyTorch leaves free."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.compiler import api as compiling
from tilewright.frontends.torch import OpenedTorch
from tilewright.frontends.torch.library import torch_library
from tilewright.frontends.torch.reasons import told
from tilewright.frontends.torch.tensors import array_of, tensor_of
from tilewright.integrations.torch.symbols import FreeSizes, number_of, symbols_of


class Specialised:
    """An executable of a graph for one set of shapes, or for sizes within ``room``; raises
    TilewrightError where there can be none."""

    def __init__(
        self,
        graph: Any,
        inputs: Sequence[Any],
        constant: Sequence[int],
        options: Mapping[str, Any],
        by_values: bool,
        free: FreeSizes | None = None,
        room: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        torch = torch_library()
        self._constant = constant
        self.room = room or {}
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
        sizes: dict[int, tuple[int, int]] = {}
        shapes = None
        if free is not None and room is not None:
            places = {name: (self._free.index(n), axis) for name, (n, axis) in free.places.items()}
            sizes = {number: places[name] for number, name in free.integers.items()}
            shapes = (tuple(free.dims(self._free, room)),)
        samples = [inputs[number] for number in self._free]
        arrays = [array_of(sample, "input") for sample in samples]
        _ = [array_of(tensor, "parameter") for tensor in tensors]
        results: list[Any] = []
        module = _bound(graph, fixed, self._free, sizes, len(inputs), results)
        with torch.inference_mode(False), torch.no_grad():
            program = told(
                "torch-export", "graph", "torch.export cannot capture it",
                lambda: torch.export.export(
                    module, tuple(map(_plain, samples)), dynamic_shapes=shapes, strict=False
                ),
            )  # fmt: skip
            opened = OpenedTorch(program)
        self._watched = Watched([inputs[number] for number in constant], by_values)
        tensor = torch.Tensor
        self._others = {n: v for n, v in enumerate(results) if not isinstance(v, tensor)}
        self._count = len(results)
        self._strides, self._symbols = _output_strides(program), symbols_of(program)
        self._names = [tensor.name for tensor in opened.signature.inputs]
        sample = dict(zip(self._names, arrays, strict=True))
        self._executable = compiling.compile(
            opened if room else opened.load(), calibration=[sample], **options
        )
        self._executable.model = None  # Nothing here is checked, and the import would stay.

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return True if it was made for sizes as large as these."""
        return all(size <= self.room[name][1] for name, size in sizes.items())

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Return True if the parameters are those that it was compiled with."""
        return self._watched.unchanged([inputs[number] for number in self._constant])

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Compute the graph's outputs from its inputs."""
        arrays = [array_of(inputs[number], "input") for number in self._free]
        outputs = self._executable.run(dict(zip(self._names, arrays, strict=True)))
        sizes = {name: arrays[n].shape[axis] for name, (n, axis) in self._symbols.items()}
        tensors = [
            _with_strides(tensor_of(array), tuple(number_of(stride, sizes) for stride in strides))
            for array, strides in zip(outputs.values(), self._strides, strict=True)
        ]
        ordered = iter(tensors)
        return [
            number_of(self._others[number], sizes) if number in self._others else next(ordered)
            for number in range(self._count)
        ]


def _bound(
    graph: Any,
    fixed: Mapping[int, Any],
    free: Sequence[int],
    sizes: Mapping[int, tuple[int, int]],
    count: int,
    results: list[Any],
) -> Any:
    """The graph as a module of its free inputs that returns its tensors alone. ``sizes`` are the
    inputs that a free one has as the size of an axis.

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
            for number, (place, axis) in sizes.items():
                values[number] = tensors[place].shape[axis]
            results[:] = self.graph(*values)
            return tuple(value for value in results if isinstance(value, torch.Tensor))

    return Bound().eval()


def _plain(tensor: Any) -> Any:
    """A tensor that torch.export takes: no parameter, and not made in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _output_strides(program: Any) -> list[tuple[Any, ...]]:
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
