"""From a kernel of the graph to planning's kernel: chains of stages over their anchors' dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.graph.dialect import KernelOp, WeightOp
from tilewright.graph.operation import Operation
from tilewright.graph.operations.pooling import PoolOperation
from tilewright.ir import SSAValue, VerifyException
from tilewright.planning.domain import Dim, Kernel, Operand, Stage, substitute, with_operands
from tilewright.planning.space.pooling import pooled


def kernel_of(op: KernelOp, names: Mapping[SSAValue, str]) -> Kernel:
    """The stages of a kernel; operands are named by ``names`` (graph/values.py).

    The first operation of each compute is its anchor; later ones are maps, restated over the
    anchor's parallel dims, at most one pool of windows that lie within the anchor's tiles
    (planning/space/pooling.py), and normalisations along an axis of the result. The last compute is
    the kernel, the earlier ones its producers. A value that the kernel reads in two ways (once as
    the anchor's input, once as a residual) appears as two operands: see ``operand_values``. Raises
    VerifyException if an operation has no domain, or a later one is neither such a pool nor a map
    of the shape before it.
    """
    return _Builder(op, names).kernel()


def operand_values(op: KernelOp, names: Mapping[SSAValue, str]) -> dict[str, SSAValue]:
    """The network's value for each operand of ``kernel_of(op, names)``, by operand name."""
    builder = _Builder(op, names)
    operands = {operand.name for operand in builder.kernel().operands}
    return {name: value for name, value in builder.values.items() if name in operands}


class _Builder:
    def __init__(self, op: KernelOp, names: Mapping[SSAValue, str]) -> None:
        self.op = op
        self.outer = op.outside
        self.names: dict[SSAValue, str] = {}
        for argument, value in self.outer.items():
            self.names[argument] = names[value]
        self.values = {names[value]: value for value in (*op.inputs, op.result)}
        operations = op.operations
        for number, inner in enumerate(operations):
            last = number == len(operations) - 1
            fallback = f"{op.symbol.data}_{number}"
            self.names[inner.result] = (
                names[op.result] if last else names.get(inner.result, fallback)
            )
        self.results = {self.names[inner.result] for inner in operations}
        """Names of what the kernel's operations compute."""
        self.read: dict[str, Operand] = {}

    def kernel(self) -> Kernel:
        """The kernel with its producers; raises VerifyException."""
        if not self.op.operations:
            raise VerifyException(f"kernel {self.op.symbol.data} is empty")
        kernels: dict[str, Kernel] = {}
        for operations in self.op.computes:
            kernel = self.compute(operations)
            producers = [kernels.pop(o.name) for o in kernel.anchor.inputs if o.name in kernels]
            kernels[kernel.output.name] = replace(kernel, producers=tuple(producers))
        if len(kernels) != 1:
            raise VerifyException(
                f"kernel {self.op.symbol.data} has {len(kernels)} results that no compute reads"
            )
        (kernel,) = kernels.values()
        nodes = [inner.node_name for inner in self.op.operations if inner.node_name]
        return with_operands(replace(kernel, nodes=tuple(dict.fromkeys(nodes))), self.stored)

    def stored(self, operand: Operand) -> Operand:
        """An operand that is a constant, or none, against what its role says."""
        constant = self.constant(operand.name)
        known = operand.name in self.values and constant != operand.is_constant
        return replace(operand, constant=constant) if known else operand

    def compute(self, operations: Sequence[Operation]) -> Kernel:
        """The stages of one compute; raises VerifyException."""
        anchor = self.known(self.stage(operations[0]))
        pools = [inner for inner in operations[1:] if isinstance(inner, PoolOperation)]
        pool = None
        if pools:
            anchor, pool = self.pool_stage(pools[0], anchor)
        stages = [anchor]
        for inner in operations[1:]:
            if pool is not None and inner is pools[0]:
                stages.append(pool)
            else:
                stages.append(self.map_stage(inner, anchor, stages[-1].output))
        written = [stage.output.name for stage in stages]
        if len(set(written)) != len(written):
            raise VerifyException(f"kernel {self.op.symbol.data} names two results alike")
        stages = [self.distinct(stage, written) for stage in stages]
        return Kernel(self.op.symbol.data, tuple(stages))

    def stage(self, inner: Operation) -> Stage:
        """An operation's own stage."""
        operands = [self.names[value] for value in inner.inputs]
        stage = inner.stage(operands, self.names[inner.result])
        if stage is None:
            raise VerifyException(
                f"kernel {self.op.symbol.data}: {inner.name} (node {inner.node_name!r}) has no "
                "loop nest of its own"
            )
        return stage

    def known(self, anchor: Stage) -> Stage:
        """The anchor, weights that are no constants marked."""
        inputs = tuple(
            replace(operand, computed=True)
            if operand.role == "weight" and not self.constant(operand.name)
            else operand
            for operand in anchor.inputs
        )
        return replace(anchor, inputs=inputs)

    def constant(self, name: str) -> bool:
        """Return True if the network's value of that name is a constant."""
        value = self.values.get(name)
        return value is not None and isinstance(value.owner, WeightOp)

    def pool_stage(self, inner: PoolOperation, anchor: Stage) -> tuple[Stage, Stage]:
        """The anchor with the dims of a pool of its result, and the pool over its dims."""
        stages = pooled(anchor, self.stage(inner))
        if stages is None:
            raise VerifyException(
                f"kernel {self.op.symbol.data}: the windows of {inner.name} "
                f"(node {inner.node_name!r}) do not lie within tiles of the anchor's result"
            )
        return stages

    def map_stage(self, inner: Operation, anchor: Stage, target: Operand) -> Stage:
        """A map over d0..dk, restated over the anchor's dims of what it reads.

        So is what reduces over dims of its own result, and then maps.
        """
        stage = self.stage(inner)
        apart = set(stage.reduction) - stage.output.dims
        if apart or stage.output.shape != target.shape:
            raise VerifyException(
                f"kernel {self.op.symbol.data}: {inner.name} (node {inner.node_name!r}) is no map "
                f"of a result {list(target.shape)}"
            )
        meaning = {f"d{axis}": access for axis, access in enumerate(target.access)}
        reduced = set[str]()
        for inner_access, access in zip(stage.output.access, target.access, strict=True):
            if inner_access.dims and inner_access.dims[0] in stage.reduction:
                meaning[inner_access.dims[0]] = access
                reduced |= set(access.dims)
        inputs = tuple(
            replace(
                operand,
                access=tuple(substitute(axis, meaning) for axis in operand.access),
                role="input" if operand.name in self.results else "residual",
            )
            for operand in stage.inputs
        )
        output = replace(stage.output, access=target.access)
        # All dims of a result are parallel to a map of it.
        dims = tuple(
            Dim(dim.name, dim.extent, "reduction" if dim.name in reduced else "parallel")
            for dim in anchor.dims
            if dim.name in target.dims
        )
        return replace(stage, dims=dims, inputs=inputs, output=output)

    def distinct(self, stage: Stage, written: Sequence[str]) -> Stage:
        """Give an operand another name where the kernel reads its value in another way."""
        inputs: list[Operand] = []
        for operand in stage.inputs:
            name, number = operand.name, 2
            while name not in written and self.read.setdefault(
                name, replace(operand, name=name)
            ) != replace(operand, name=name):
                name = f"{operand.name}_again{'' if number == 2 else number}"
                number += 1
            if name != operand.name:
                self.values[name] = self.values[operand.name]
            inputs.append(replace(operand, name=name))
        return replace(stage, inputs=tuple(inputs))
