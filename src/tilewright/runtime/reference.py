"""The graph that a package's program was made from, and its weights: for checks of results.

A weight that lies in the program's own file of weights, as its layout and placement say, is read
from there; the package keeps no second copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tilewright.codegen.program.interface import Compilation
from tilewright.errors import refuse
from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operations import context
from tilewright.graph.placement import WEIGHTS, placement_of
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, ParseError, Parser, VerifyException
from tilewright.ir.types import Array, element_dtype, layout_of, tensor_type
from tilewright.planning.layout import Layout
from tilewright.targets.base import Target

GRAPH_FILE = "graph.mlir"
WEIGHTS_FILE = "weights.safetensors"


def packed_weights(target: Target, program: Path) -> Path | None:
    """The file of a program in which its weights are, if there is one."""
    path = program / target.weights_file
    return path if target.weights_file and path.is_file() else None


def write_reference(folder: Path, compilation: Compilation, packed: Path | None) -> None:
    """Write a graph and those of its weights that are not in the file ``packed``."""
    weights = compilation.weights
    assert isinstance(weights, Weights)
    (folder / GRAPH_FILE).write_text(compilation.text)
    packaged = (
        {op.symbol.data for op in _packed(compilation.network)}
        if packed is not None
        else set[str]()
    )
    weights.subset(symbol for symbol in weights if symbol not in packaged).save(
        folder / WEIGHTS_FILE
    )


def read_reference(folder: Path, packed: Path | None) -> tuple[ModuleOp, Weights]:
    """The graph and all of its weights; refuses (``package-invalid``) what is damaged."""
    weights = Weights.load(folder / WEIGHTS_FILE)
    try:
        module = Parser(context(), (folder / GRAPH_FILE).read_text()).parse_module()
        module.verify()
        network_of(module)
        if packed is not None:
            weights = weights.beside(_unpacked(module, weights, packed))
    except (ParseError, VerifyException, OSError, ValueError, RecursionError) as error:
        raise refuse("package-invalid", str(error), str(folder / GRAPH_FILE)) from error
    return module, weights


def _packed(module: ModuleOp) -> Iterable[WeightOp]:
    """The weights that have a place in the arena of weights."""
    # Those of loops' bodies are in other files.
    for op in network_of(module).block.ops:
        if not isinstance(op, WeightOp) or op.placement is None:
            continue
        if placement_of(op.result).arena == WEIGHTS:
            yield op


def _unpacked(module: ModuleOp, kept: Weights, packed: Path) -> dict[str, Array]:
    """The weights that are not kept apart, from the arena; raises ValueError or OSError."""
    wanted = {op.symbol.data: op for op in _packed(module) if op.symbol.data not in kept}
    if not wanted:
        return {}
    arena = np.memmap(packed, np.uint8, "r") if packed.stat().st_size else np.zeros(0, np.uint8)
    arrays: dict[str, Array] = {}
    for symbol, op in wanted.items():
        kind = tensor_type(op.result)
        shape, dtype = kind.get_shape(), np.dtype(element_dtype(kind.element_type))
        layout = Layout.parse(layout_of(op.result), len(shape))
        physical = layout.physical_shape(shape)
        start = placement_of(op.result).offset
        data = arena[start : start + int(np.prod(physical)) * dtype.itemsize].view(dtype)
        arrays[symbol] = layout.unpack(data.reshape(physical), shape)
    return arrays
