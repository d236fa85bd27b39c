"""An exported program as an ONNX model in memory, and its weights beside it as arrays.

Inputs and outputs are named by the module's own arguments and keys, not by the exporter; free dims
have the bounds that torch.export found, or was given as ``Dim(name, min, max)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from onnx import ModelProto

from tilewright.errors import refuse
from tilewright.frontends.torch.library import torch_library
from tilewright.frontends.torch.reasons import told
from tilewright.ir.types import Array
from tilewright.shapes.forms import LARGEST_SIZE, Bounds
from tilewright.shapes.settlement import Signature


def to_onnx(
    program: Any, title: str, dynamic_shapes: Any = None
) -> tuple[ModelProto, dict[str, Array]]:
    """An exported program as an ONNX model without its weights, and these by name.

    ``dynamic_shapes``, if it is given, has the names of the free dims. Raises TilewrightError
    (``torch-onnx``) with torch's reason.
    """
    torch = torch_library()
    where = f"module {title}"
    names = input_names(program), output_names(program)

    def write() -> Any:
        with torch.no_grad():
            written = torch.onnx.export(
                program, dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes
            ).model
        rename(written, *names)
        return written

    def serialise() -> ModelProto:
        return import_module("onnx_ir").serde.serialize_model(written)

    written = told("torch-onnx", where, "torch cannot write it as ONNX", write)
    stored = {value.name: value.const_value for value in written.graph.initializers.values()}
    if any(value is None for value in stored.values()):
        raise refuse("torch-onnx", "a weight of its ONNX form has no value", where)
    weights = {name: value.numpy() for name, value in stored.items()}
    written.graph.initializers.clear()
    return told("torch-onnx", where, "its ONNX form is damaged", serialise), weights


def with_bounds(signature: Signature, program: Any) -> Signature:
    """A signature with the bounds under which an exported program holds, dim by dim.

    The signature's inputs are the program's tensor inputs, in their order.
    """
    stored = program.graph_signature
    tensors = [
        node.meta["val"]
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in stored.user_inputs and isinstance(node.meta["val"], torch_library().Tensor)
    ]
    bounded = [
        replace(item, bounds=_bounds(item.dims or (), tensor.shape, program.range_constraints))
        for item, tensor in zip(signature.inputs, tensors, strict=True)
    ]
    return replace(signature, inputs=tuple(bounded))


def _bounds(dims: tuple[int | str, ...], sizes: Any, constraints: Any) -> dict[str, Bounds]:
    bounds: dict[str, Bounds] = {}
    for dim, size in zip(dims, sizes, strict=True):
        limits = None if isinstance(size, int) else constraints.get(size.node.expr)
        if isinstance(dim, str) and limits is not None:
            low, high = max(limits.lower, 1), min(limits.upper, LARGEST_SIZE)
            bounds[dim] = Bounds(int(low), int(high))
    return bounds


def input_names(program: Any) -> list[str]:
    """The tensor inputs' names, in order: the arguments that they are given by."""
    tensor = torch_library().export.graph_signature.TensorArgument
    specs = program.graph_signature.input_specs
    return [s.arg.name for s in specs if _is_user(s) and isinstance(s.arg, tensor)]


def output_names(program: Any) -> list[str]:
    """The tensor outputs' names, in order.

    Entries of a dict (and of the output classes of transformers) are called as there,
    ``last_hidden_state``; others by position, ``output`` or ``output_0``, ``output_1``.
    """
    tensor = torch_library().export.graph_signature.TensorArgument
    pytree = import_module("torch.utils._pytree")
    spec = program.call_spec.out_spec
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    specs = [s for s in program.graph_signature.output_specs if _is_user(s)]
    leaves = pytree.tree_flatten_with_path(tree)[0]
    return [_name_of(path) for path, index in leaves if isinstance(specs[index].arg, tensor)]


def _is_user(spec: Any) -> bool:
    return spec.kind.name in ("USER_INPUT", "USER_OUTPUT")


def _name_of(path: Sequence[Any]) -> str:
    """``last_hidden_state``, ``past_0_1``, ``output_2``, or ``output`` for the only one."""
    steps = [getattr(step, "key", getattr(step, "idx", getattr(step, "name", ""))) for step in path]
    words = [re.sub(r"\W+", "_", str(step)).strip("_") for step in steps]
    named = words if words and not words[0].isdigit() else ["output", *words]
    return "_".join(filter(None, named))


def rename(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give an onnx_ir model's inputs and outputs their names, each a different one.

    Other values of those names get new ones. An output that is also an input or a constant, or
    that is listed twice, gets an Identity node, which import leaves out.
    """
    onnx_ir = import_module("onnx_ir")
    graph = model.graph
    count = 0
    for value in [*graph.inputs, *graph.initializers.values(), *_results(graph)]:
        if value.name in inputs or value.name in outputs:
            count += 1
            value.name = f"inner_{count}_{value.name}"
    taken: set[str] = set()
    for value, name in zip(graph.inputs, inputs, strict=True):
        value.name = _fresh(name, taken)
    proper = {id(value) for value in _results(graph)}
    for number, (value, name) in enumerate(zip(graph.outputs, outputs, strict=True)):
        if id(value) not in proper:
            node = onnx_ir.node("Identity", [value])
            graph.append(node)
            graph.outputs[number] = value = node.outputs[0]
        proper.discard(id(value))
        value.name = _fresh(name, taken)


def _results(graph: Any) -> list[Any]:
    """Every value that a node makes, in subgraphs too."""
    return [value for node in graph.all_nodes() for value in node.outputs]


def _fresh(wanted: str, taken: set[str]) -> str:
    """The name, or with a number appended if it is taken."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
