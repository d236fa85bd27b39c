"""Take the operations of a function in order; calls are written out where they stand.

Operations are named by JAX's scopes; an operation whose operands are all known is evaluated at
once, with the meaning that the graph gives it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.emitter import NetworkBuilder
from tilewright.frontends.imported import ModelNode
from tilewright.frontends.limits import MAX_ELEMENTS, MAX_RANK
from tilewright.frontends.stablehlo.limits import (
    MAX_DEPTH,
    MAX_FOLDED_ELEMENTS,
    MAX_OPERATIONS,
)
from tilewright.frontends.stablehlo.lowering import Lowering, Rule, where
from tilewright.frontends.stablehlo.operators import RULES
from tilewright.frontends.stablehlo.program import Block, Kind, Operation, Program
from tilewright.frontends.stablehlo.values import Entry, View
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operation import Operation as GraphOperation
from tilewright.graph.weights import Weights
from tilewright.ir import Block as GraphBlock
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, shape_of

Scope = dict[int, Entry | None]
"""The entry of each value, by its number; None for results of a refused operation."""


@dataclass(frozen=True)
class Call:
    """An operation with others inside, or of whole entries, where it stands."""

    body: Body
    op: Operation
    label: str
    operands: Sequence[Entry]
    scope: Scope

    @property
    def where(self) -> str:
        """The place of a problem."""
        return where(self.op, self.label)

    def apply(self, rule: Rule) -> Sequence[Entry]:
        """The results of a rule; raises TilewrightError."""
        return self.body.apply(rule, self.op, self.label, self.operands)


Control = Callable[[Call], Sequence[Entry | None]]
"""Takes an operation that runs others, or that moves whole entries."""

SHORT = frozenset(("float16", "bfloat16"))
"""Floats that are kept, but computed on as float32, as XLA's processors do."""

_MOVERS = """
    broadcast_in_dim concatenate constant convert dynamic_slice dynamic_update_slice gather iota
    optimization_barrier pad reshape reverse select slice transpose
"""

MOVERS = frozenset(f"stablehlo.{name}" for name in _MOVERS.split())
"""Operations that take short floats as they are."""


class Body:
    """The state of taking a program's operations."""

    def __init__(
        self,
        program: Program,
        network: NetworkBuilder,
        problems: list[Problem],
        control: Mapping[str, Control],
    ) -> None:
        self.program = program
        self.network = network
        self.problems = problems
        self.nodes: list[ModelNode] = []
        self._control = control
        self._labels = Labels()
        self._taken = 0
        self._depth = 0

    def run(self, block: Block, scope: Scope, within: str) -> Sequence[Entry | None]:
        """Take a block whose arguments are in scope; what it returns."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise refuse(
                    "stablehlo-too-large",
                    f"calls and loops lie more than {MAX_DEPTH} deep in one another",
                    where=within or "program",
                )
            for op in block.operations:
                if op.name in ("stablehlo.return", "func.return"):
                    return [scope.get(number) for number in op.operands]
                self._taken += 1
                if self._taken > MAX_OPERATIONS:
                    raise refuse(
                        "stablehlo-too-large",
                        f"it takes more than {MAX_OPERATIONS} operations once calls and loops "
                        "are written out",
                        where=within or "program",
                    )
                self._take(op, scope, within)
        finally:
            self._depth -= 1
        return []

    def call(
        self, name: str, operands: Sequence[Entry], op: Operation, label: str
    ) -> Sequence[Entry | None]:
        """Return the results of a function for operands; raises TilewrightError."""
        function = self.program.functions.get(name)
        if function is None or not function.regions:
            raise refuse("stablehlo-entry", f"there is no function {name[:60]!r}", where(op, label))
        block = function.regions[0]
        return self.run(block, dict(zip(block.arguments, operands, strict=True)), label)

    def _take(self, op: Operation, scope: Scope, within: str) -> None:
        """Import one operation: give an entry to each of its results."""
        operands = [scope.get(number) for number in op.operands]
        label = self._labels.name(op.location, op.name, within)
        # What is evaluated at import leaves its name to what is not.
        if not all(isinstance(x, View) and not isinstance(x.core, SSAValue) for x in operands):
            label = self._labels.unique(label)
        results: Sequence[Entry | None] = [None] * len(op.results)
        entries = [operand for operand in operands if operand is not None]
        if len(entries) == len(operands):
            try:
                results = self._results(op, label, entries, scope)
            except TilewrightError as error:
                if any(problem.code == "stablehlo-too-large" for problem in error.problems):
                    raise
                self.problems.extend(error.problems)
        elif op.name not in RULES and op.name not in self._control:
            self.problems.append(_unknown(op, label))
        scope.update(zip(op.results, results, strict=True))

    def _results(
        self, op: Operation, label: str, operands: Sequence[Entry], scope: Scope
    ) -> Sequence[Entry | None]:
        """The results of an operation; raises TilewrightError."""
        check_kinds(op.kinds, where(op, label))
        control = self._control.get(op.name)
        if control is not None:
            return control(Call(self, op, label, operands, scope))
        rule = RULES.get(op.name)
        if rule is None:
            raise TilewrightError(_unknown(op, label))
        return self.apply(rule, op, label, operands)

    def apply(
        self, rule: Rule, op: Operation, label: str, operands: Sequence[Entry]
    ) -> Sequence[Entry]:
        """The results of a rule, at once where all operands are known; raises TilewrightError."""
        views = [view for view in operands if isinstance(view, View)]
        if len(views) != len(operands):
            raise refuse("stablehlo-dtype", "an operand is a tuple", where(op, label))

        def build(network: NetworkBuilder) -> Sequence[View]:
            return self._applied(rule, Lowering(op, label, views, network))

        if all(not isinstance(view.core, SSAValue) for view in views):
            results = folded(build)
            if results is not None:
                return results
        self.nodes.append(ModelNode(label, op.name, ()))
        return build(self.network)

    def _applied(self, rule: Rule, at: Lowering) -> Sequence[View]:
        """A rule's results, with the types that the program states."""
        if at.op.name not in MOVERS:
            at.views = [_widened(at, view) for view in at.views]
        lowered = rule(at)
        results = [lowered] if isinstance(lowered, View) else list(lowered)
        if len(results) != len(at.op.kinds):
            raise at.refuse(f"it has {len(at.op.kinds)} results, of which {len(results)} are known")
        return [_typed(at, view, kind) for view, kind in zip(results, at.op.kinds, strict=True)]


def _widened(at: Lowering, view: View) -> View:
    if view.dtype.name not in SHORT:
        return view
    return at.converted(view, np.float32)


def _typed(at: Lowering, view: View, kind: Kind) -> View:
    if view.shape != kind.shape:
        raise at.misfit(
            f"its result has shape {list(view.shape)}, the program says {list(kind.shape)}"
        )
    return at.converted(view, kind.dtype)


def _unknown(op: Operation, label: str) -> Problem:
    reason = "it is not among the operations that are read (docs/stablehlo.md)"
    return Problem("stablehlo-unsupported", reason, where(op, label))


def check_kinds(kinds: Sequence[Kind], place: str) -> None:
    """Refuses types that no tensor of the network has."""
    for kind in kinds:
        if kind.parts is not None:
            check_kinds(kind.parts, place)
        elif kind.text:
            dynamic = "?" in kind.text
            raise refuse(
                "stablehlo-shape" if dynamic else "stablehlo-dtype",
                f"a value of type {kind.text} " + ("has open sizes" if dynamic else "is not read"),
                place,
                help="export it for shapes that are numbers" if dynamic else "",
            )
        else:
            check_shape(kind.shape, place)


def check_shape(shape: Sequence[int], place: str) -> None:
    """Refuses shapes that are out of bounds."""
    count = 1
    for extent in shape:
        count *= extent
    if len(shape) > MAX_RANK or count > MAX_ELEMENTS:
        raise refuse(
            "stablehlo-too-large",
            f"a tensor of shape {list(shape)}; the limits are {MAX_RANK} axes and "
            f"{MAX_ELEMENTS} elements",
            place,
        )


def tensor_entry(value: SSAValue) -> View:
    """A tensor of the network as an entry."""
    return View(value, tuple(range(len(shape_of(value)))), shape_of(value))


_WRAPPED = re.compile(r"^(?:jit|pjit|jvp|vmap|remat|checkpoint|custom_[a-z_]+)\((.*)\)$")


class Labels:
    """Names of operations, each given once."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """A name, with a number if it has been given before."""
        self._counts[name] += 1
        count = self._counts[name]
        return name if count == 1 else f"{name}_{count - 1}"

    @staticmethod
    def name(location: str, operation: str, within: str) -> str:
        """Name an operation of a function (or loop) whose own name is ``within``."""
        parts = _scopes(location)
        if not within:
            # The first scope is the function that was exported.
            parts = parts[1:] or parts
        name = "/".join(parts) or operation.rpartition(".")[2]
        return f"{within}/{name}" if within else name


def _scopes(location: str) -> list[str]:
    """The parts of a location's name: ``jit(f)/Conv_0/add`` is f, Conv_0, add."""
    scopes: list[str] = []
    for part in location.rstrip(":").split("/"):
        match = _WRAPPED.match(part)
        while match:
            part = match.group(1)
            match = _WRAPPED.match(part)
        if part:
            scopes.append(part)
    return scopes


def folded(build: Callable[[NetworkBuilder], Sequence[View]]) -> Sequence[View] | None:
    """The results as arrays; None if evaluating them would make a tensor that is too large."""
    block, weights = GraphBlock(), Weights()
    results = build(NetworkBuilder(block, weights))
    for op in block.ops:
        if any(math.prod(shape_of(value)) > MAX_FOLDED_ELEMENTS for value in op.results):
            return None
    arrays: dict[SSAValue, Array] = {}
    with np.errstate(all="ignore"):
        for op in block.ops:
            if isinstance(op, WeightOp):
                arrays[op.result] = weights.get(op.symbol.data)
            elif isinstance(op, GraphOperation):
                result = op.evaluate(*(arrays[value] for value in op.inputs))
                dtype = dtype_of(op.result)
                arrays[op.result] = np.asarray(result, dtype)
    return [
        View(arrays[view.core], view.axes, view.shape) if isinstance(view.core, SSAValue) else view
        for view in results
    ]
