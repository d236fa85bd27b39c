"""Sizes that torch.compile leaves free in a graph, and what follows from them.

With ``dynamic=True``, or once a size has changed, PyTorch hands over a graph whose inputs have
sizes such as ``s27``, each also an integer input of the graph where it computes with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.plans import LONGEST
from tilewright.frontends.torch.library import torch_library

ROOM = 4
"""The times that the size at hand goes into the largest of a package, which is rounded up to a
power of 2, where PyTorch knows no bound."""


@dataclass(frozen=True)
class FreeSizes:
    """The free sizes of a captured graph."""

    places: Mapping[str, tuple[int, int]]
    """The input and the axis that have each size first."""
    axes: Mapping[int, Mapping[int, str]]
    """The free axes of each input, by its number, with their sizes."""
    integers: Mapping[int, str]
    """The inputs that are sizes."""
    bounds: Mapping[str, tuple[int, int]]
    """The least of each size, and the largest, which may be beyond all that is planned for."""

    def of(self, inputs: Sequence[Any]) -> dict[str, int]:
        """The sizes in a run."""
        return {name: inputs[n].shape[axis] for name, (n, axis) in self.places.items()}

    def dims(self, inputs: Sequence[int], room: Mapping[str, tuple[int, int]]) -> list[Any]:
        """What torch.export takes as the dynamic shapes of some inputs, by their numbers."""
        make = torch_library().export.Dim
        dims = {name: make(name, min=low, max=high) for name, (low, high) in room.items()}
        return [
            {axis: dims[name] for axis, name in self.axes.get(number, {}).items()}
            for number in inputs
        ]

    def room(
        self, sizes: Mapping[str, int], before: Mapping[str, tuple[int, int]]
    ) -> dict[str, tuple[int, int]] | None:
        """The bounds of a package for these sizes and larger ones, those of the one ``before`` too;
        None where it cannot be."""
        found: dict[str, tuple[int, int]] = {}
        for name, size in sizes.items():
            low, high = self.bounds[name]
            _, most = before.get(name, (low, 8))
            if size > most or not before:
                most = max(most, 1 << (ROOM * size - 1).bit_length())
            found[name] = low, high if high <= LONGEST else min(most, LONGEST)
            if not low <= size <= found[name][1] or low == found[name][1]:
                return None
        return found


def free_sizes(graph: Any) -> FreeSizes | None:
    """The free sizes of a captured graph; None where there is none, or where an input's size
    follows from one, as ``2*s27`` does."""
    torch = torch_library()
    places: dict[str, tuple[int, int]] = {}
    axes: dict[int, dict[int, str]] = {}
    integers: dict[int, str] = {}
    bounds: dict[str, tuple[int, int]] = {}
    for number, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            integers[number] = str(value.node.expr)
        if not isinstance(value, torch.Tensor):
            continue
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                continue
            if not size.node.expr.is_Symbol:
                return None
            name = str(size.node.expr)
            places.setdefault(name, (number, axis))
            axes.setdefault(number, {})[axis] = name
            known = size.node.shape_env.var_to_range[size.node.expr]
            high = LONGEST + 1 if known.upper > LONGEST else int(known.upper)
            bounds[name] = max(1, int(known.lower)), high
    if not places or any(name not in places for name in integers.values()):
        return None
    return FreeSizes(places, axes, integers, bounds)


def symbols_of(program: Any) -> dict[Any, tuple[int, int]]:
    """The symbols of an exported program: each a tensor input, by its place, and an axis."""
    torch = torch_library()
    stored = program.graph_signature.user_inputs
    values = [n.meta["val"] for n in program.graph.find_nodes(op="placeholder") if n.name in stored]
    return {
        size.node.expr: (place, axis)
        for place, value in enumerate(v for v in values if isinstance(v, torch.Tensor))
        for axis, size in enumerate(value.shape)
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
    }


def number_of(value: Any, sizes: Mapping[Any, int]) -> Any:
    """A number of an exported program, such as ``8*s27``, where its symbols are these sizes."""
    if isinstance(value, torch_library().SymInt):
        return int(value.node.expr.subs(sizes))
    return value
