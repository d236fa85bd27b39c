"""Refuse exported programs that do more than compute tensors from tensors."""

from __future__ import annotations

from typing import Any

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.torch.library import torch_library
from tilewright.frontends.torch.reasons import listed, told


def check_program(program: Any, title: str) -> None:
    """Raises TilewrightError: ``torch-mutation``, ``-output``, ``-tensor``, ``-training``."""
    where = f"module {title}"
    problems = [*_outputs(program, where), *_complex(program, where), *_trained(program, where)]
    changed = _changed(program)
    if changed:
        problems.append(
            Problem(
                "torch-mutation",
                f"it changes {listed(changed)} in place when it runs",
                where,
                "return new tensors instead; a compiled network has no state",
            )
        )
    if problems:
        raise TilewrightError(problems)


def _outputs(program: Any, where: str) -> list[Problem]:
    """Outputs that are numbers; those that are None are left out of the network."""
    problems: list[Problem] = []
    for number, spec in enumerate(program.graph_signature.output_specs):
        value = getattr(spec.arg, "value", None)
        if value is not None or type(spec.arg).__name__.startswith("Sym"):
            text = "a number" if value is None else repr(value)
            reason = f"its output {number} is {text}, no tensor"
            problems.append(Problem("torch-output", reason, where))
    return problems


def _complex(program: Any, where: str) -> list[Problem]:
    """Complex tensors, of which the exporter would make pairs of numbers."""
    tensor = torch_library().Tensor
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    nodes = [n for n, value in values.items() if isinstance(value, tensor) and value.is_complex()]
    if not nodes:
        return []
    return [Problem("torch-tensor", f"complex numbers are not computed: {listed(nodes)}", where)]


def _trained(program: Any, where: str) -> list[Problem]:
    """Normalisations that update running statistics: torch writes them as if they used these."""
    nodes = [node.name for node in program.graph.nodes if _updates_statistics(node)]
    if not nodes:
        return []
    reason = f"{listed(nodes)} normalises by the batch and updates running statistics"
    help = "normalise by the running statistics (training=False), or give none"
    return [Problem("torch-training", reason, where, help)]


def _updates_statistics(node: Any) -> bool:
    if not _is_operation(node):
        return False
    arguments = {argument.name: value for argument, value in _given(node)}
    by_batch = any(arguments.get(name) is True for name in ("training", "train", "use_input_stats"))
    return by_batch and arguments.get("running_mean") is not None


def _changed(program: Any) -> list[str]:
    """Inputs, parameters and buffers that the program changes."""
    declared = _declared(program)
    suspects = sorted({name for node in program.graph.nodes for name in _written(node)})
    if declared or not suspects:
        return declared
    try:  # What is written to may be a copy after all; torch's own analysis knows, and is slow.
        return _declared(told("torch-export", "", "", lambda: program.run_decompositions({})))
    except TilewrightError:  # It fails on an input that is changed and returned.
        return suspects


def _declared(program: Any) -> list[str]:
    """List the changes of state that a program declares whose operations write to nothing."""
    signature = program.graph_signature
    return [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]


def _written(node: Any) -> list[str]:
    """The inputs and stored tensors that an operation may write to."""
    if not _is_operation(node) or not node.target._schema.is_mutable:
        return []
    return [
        name
        for argument, value in _given(node)
        if argument.alias_info is not None and argument.alias_info.is_write
        for name in _origins(value)
    ]


def _origins(value: Any) -> list[str]:
    """The placeholders that a value may share memory with, through operations that alias."""
    origins: list[str] = []
    left: list[Any] = [value]
    while left:
        node = left.pop()
        if isinstance(node, list | tuple):
            left += node
        elif not isinstance(node, torch_library().fx.Node):
            continue
        elif node.op in ("placeholder", "get_attr"):
            origins.append(node.name)
        elif _is_operation(node):
            left += [item for argument, item in _given(node) if argument.alias_info is not None]
        else:  # An item of several results.
            left += node.args[:1]
    return origins


def _is_operation(node: Any) -> bool:
    return node.op == "call_function" and hasattr(node.target, "_schema")


def _given(node: Any) -> list[tuple[Any, Any]]:
    """The arguments of an operation's schema, and what the node gives for them."""
    arguments = node.target._schema.arguments
    named = {argument.name: argument for argument in arguments}
    pairs = [(named[key], value) for key, value in node.kwargs.items() if key in named]
    return [*zip(arguments, node.args, strict=False), *pairs]
