"""Names of a network's values: stable, unique, readable, and C identifiers.

A value is named after the model's input or node that it comes from, so a pass that leaves a node
alone leaves its value's name alone. The model's own spelling is kept for messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import (
    KernelOp,
    NetworkOp,
    ScratchOp,
    WeightOp,
    network_of,
)
from tilewright.graph.names import Namer
from tilewright.graph.operation import Operation
from tilewright.graph.operations.loops import LoopOp
from tilewright.ir import Block, SSAValue
from tilewright.ir import Operation as AnyOperation


@dataclass(frozen=True)
class ValueNames:
    """Names of all values of a network."""

    names: dict[SSAValue, str]
    """Value -> identifier. A kernel's block arguments have the names of its operands, and what it
    yields has the name of its result. Values of a loop's body have the loop's name, a dot, and
    theirs among the body's."""
    originals: dict[str, str]
    """Identifier -> the model's name for it."""


def name_values(module: AnyOperation) -> ValueNames:
    """Name every value of the network in ``module`` (or of the network itself)."""
    network = module if isinstance(module, NetworkOp) else network_of(module)
    namer, names = Namer(), dict[SSAValue, str]()
    for name, value in network.inputs:
        names[value] = namer.unique(name, "input")
    _name_block(network.block, namer, names)
    return ValueNames(names, namer.originals)


def value_names(module: AnyOperation) -> dict[SSAValue, str]:
    """The identifiers alone: see ``name_values``."""
    return name_values(module).names


def _name_block(block: Block, namer: Namer, names: dict[SSAValue, str]) -> None:
    for op in block.ops:
        if isinstance(op, WeightOp):
            names[op.result] = namer.unique(op.symbol.data, "weight")
        elif isinstance(op, ScratchOp):
            names[op.result] = namer.unique("scratch")
        elif isinstance(op, KernelOp):
            names |= {argument: names[operand] for argument, operand in op.outside.items()}
            _name_block(op.body.block, namer, names)
            inside = isinstance(op.computed.owner, Operation)
            names[op.result] = names[op.computed] if inside else namer.unique(op.symbol.data)
        elif isinstance(op, Operation):
            names[op.result] = _name_of(op, namer)
            if isinstance(op, LoopOp):
                _name_rounds(op, names)


def _name_rounds(op: LoopOp, names: dict[SSAValue, str]) -> None:
    """Name the values of a loop's body: the loop's name, then a name that is unique in the body."""
    namer, inner, block = Namer(), dict[SSAValue, str](), op.body.block
    for argument in block.args:
        inner[argument] = namer.unique(argument.name_hint or "", "argument")
    _name_block(block, namer, inner)
    names |= {value: f"{names[op.result]}.{name}" for value, name in inner.items()}


def _name_of(op: Operation, namer: Namer) -> str:
    """The node's name; for a further operation of the same node, the operation's name appended."""
    operation, node = op.operation, op.node_name
    if not node:
        return namer.unique(operation)
    if node in namer.known:
        return namer.unique(f"{node}_{operation}")
    return namer.unique(node)
