"""The graph dialect: a network of operations on tensors.

    graph.network "lenet" attributes {input_names = ["input"], output_names = ["scores"]} {
    ^bb0(%input: tensor<1x1x32x32xf32>):
      %conv1_weight_1f3a90c2 = graph.weight {symbol = "conv1_weight_1f3a90c2"} : tensor<6x1x5x5xf32>
      %conv1 = graph.conv %input, %conv1_weight_1f3a90c2 {node = "conv1"} : (...) -> tensor<...>
      graph.output %conv1 : tensor<...>
    }

Values are tensors in ONNX's logical axis order (NCHW for images); an encoding on the type, such as
``tensor<1x64x56x56xf32, "NCHW16c">``, says how the tensor lies in memory and never changes what
an operation means. Attributes hold plain values (ir.to_attribute). Every operation keeps the name
of the model's node it came from in ``node``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from tilewright.graph.checks import check_alike, check_order, names_in
from tilewright.graph.names import value_hint
from tilewright.graph.operation import Operation
from tilewright.ir import (
    ArrayAttr,
    Block,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    ParsePropInAttrDict,
    Region,
    SSAValue,
    StringAttr,
    TensorType,
    UnitAttr,
    VerifyException,
    from_attribute,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    to_attribute,
    traits_def,
    var_operand_def,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import tensor, tensor_type


@irdl_op_definition
class WeightOp(IRDLOperation):
    """A constant of the network; its data lies in the weight store under ``symbol``."""

    name = "graph.weight"
    symbol = prop_def(StringAttr)
    placement = opt_prop_def(ArrayAttr)
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format: ClassVar[str | None] = "attr-dict `:` type($result)"

    @classmethod
    def of(cls, symbol: str, kind: TensorType[Any]) -> WeightOp:
        """The weight ``symbol`` of type ``kind``."""
        op = cls.build(result_types=[kind], properties={"symbol": StringAttr(symbol)})
        op.result.name_hint = value_hint(symbol)
        return op


@irdl_op_definition
class ScratchOp(IRDLOperation):
    """Memory for one kernel to work in; what is in it before and after means nothing.

    What is ``lasting`` starts as zeros and stays from run to run, before all else in memory.
    """

    name = "graph.scratch"
    placement = opt_prop_def(ArrayAttr)
    lasting = opt_prop_def(UnitAttr)
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format: ClassVar[str | None] = "attr-dict `:` type($result)"

    @classmethod
    def of(cls, elements: int) -> ScratchOp:
        """Scratch memory for ``elements`` numbers of type float32."""
        return cls.build(result_types=[tensor((elements,))])

    @classmethod
    def kept(cls, shape: Sequence[int]) -> ScratchOp:
        """Lasting memory for a float32 tensor."""
        return cls.build(result_types=[tensor(shape)], properties={"lasting": UnitAttr()})


@irdl_op_definition
class OutputOp(IRDLOperation):
    """Ends a network; its operands are the network's outputs."""

    name = "graph.output"
    values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator())
    assembly_format: ClassVar[str | None] = "($values^ `:` type($values))? attr-dict"


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The end of a kernel or of a loop's body; its operands are the results."""

    name = "graph.yield"
    values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator())
    assembly_format: ClassVar[str | None] = "$values attr-dict `:` type($values)"


@irdl_op_definition
class KernelOp(IRDLOperation):
    """Operations that are planned and run as one.

    The region's block takes one argument per operand and ends with ``graph.yield``. ``symbol`` is
    a C identifier, unique in the network. ``engine`` is ``accelerator`` or ``host``; ``reason``
    says why a kernel is on the host.

    Operations after the first are applied to its results as these are written. One that ``begins``
    a further compute instead reads the result of an earlier one on the chip; the operations after
    it are applied to its own results.
    """

    name = "graph.kernel"
    symbol = prop_def(StringAttr)
    engine = opt_prop_def(StringAttr)
    reason = opt_prop_def(StringAttr)
    scattered = opt_prop_def(UnitAttr)
    """The result is a part of another value whose elements do not lie side by side."""
    placement = opt_prop_def(ArrayAttr)
    inputs = var_operand_def(TensorType)
    result = result_def(TensorType)
    body = region_def("single_block")
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format: ClassVar[str | None] = (
        "$symbol ` ` `(` ($inputs^)? `)` `:` functional-type($inputs, $result) "
        "attr-dict-with-keyword $body"
    )

    @property
    def outside(self) -> dict[SSAValue, SSAValue]:
        """The network's value that each argument of the block stands for."""
        return dict(zip(self.body.block.args, self.inputs, strict=True))

    @property
    def operations(self) -> list[Operation]:
        """The fused operations, in order."""
        return [op for op in self.body.block.ops if isinstance(op, Operation)]

    @property
    def anchor(self) -> Operation:
        """The first operation, by which the kernel is planned."""
        if not (operations := self.operations):
            raise VerifyException(f"kernel {self.symbol.data} is empty")
        return operations[0]

    @property
    def computes(self) -> list[list[Operation]]:
        """The operations by compute, in order."""
        computes: list[list[Operation]] = []
        for op in self.operations:
            if not computes or op.begins is not None:
                computes.append([])
            computes[-1].append(op)
        return computes

    @property
    def on_host(self) -> bool:
        """True if the kernel runs on the host."""
        return self.engine is not None and self.engine.data == "host"

    @property
    def told_reason(self) -> str:
        """The reason why the kernel is on the host, or ""."""
        return self.reason.data if self.reason is not None else ""

    @property
    def yield_op(self) -> YieldOp:
        """The operation that ends the kernel."""
        last = self.body.block.last_op
        if not isinstance(last, YieldOp):
            raise VerifyException(f"graph.kernel {self.symbol.data!r} must end with graph.yield")
        return last

    @property
    def computed(self) -> SSAValue:
        """The value inside the kernel that is its result."""
        return self.yield_op.values[0]

    def verify_(self) -> None:
        """Check the block against the operands and the result."""
        where, block = f"graph.kernel {self.symbol.data!r}", self.body.block
        values = self.yield_op.values
        check_alike(self.inputs, block.args, where)
        check_alike([self.result], values, where)
        check_order(block, where)


@irdl_op_definition
class NetworkOp(IRDLOperation):
    """A network: block arguments are its inputs; ``graph.output`` names its outputs."""

    name = "graph.network"
    symbol = prop_def(StringAttr)
    input_names = prop_def()
    output_names = prop_def()
    placements = opt_prop_def(ArrayAttr)
    """Placement of every input, once plan-memory has run."""
    arenas = opt_prop_def(ArrayAttr)
    """``[name, bytes]`` of every arena, once plan-memory has run."""
    numbers = opt_prop_def(ArrayAttr)
    """The choices of fix-numbers: ``[value, fraction, minimum, maximum]`` of every value."""
    size_inputs = opt_prop_def(ArrayAttr)
    """``[name, most]`` of the inputs that are sizes of a run (graph/run_sizes.py)."""
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format: ClassVar[str | None] = "$symbol attr-dict-with-keyword $body"

    @classmethod
    def of(
        cls, name: str, inputs: Sequence[tuple[str, TensorType[Any]]], outputs: Sequence[str]
    ) -> NetworkOp:
        """An empty network; fill ``block`` and end it with ``graph.output``."""
        block = Block(arg_types=[kind for _, kind in inputs])
        for argument, (input_name, _) in zip(block.args, inputs, strict=True):
            argument.name_hint = value_hint(input_name)
        return cls.build(
            regions=[Region(block)],
            properties={
                "symbol": StringAttr(name),
                "input_names": to_attribute([name for name, _ in inputs]),
                "output_names": to_attribute(list(outputs)),
            },
        )

    @property
    def block(self) -> Block:
        """The network's one block."""
        return self.body.block

    @property
    def operations(self) -> list[Operation]:
        """The operations that stand in no kernel, in order."""
        return [op for op in self.block.ops if isinstance(op, Operation)]

    @property
    def kernels(self) -> list[KernelOp]:
        """The kernels, in order."""
        return [op for op in self.block.ops if isinstance(op, KernelOp)]

    @property
    def inputs(self) -> list[tuple[str, SSAValue]]:
        """Names and values of the inputs, as in the model."""
        names = cast("tuple[str, ...]", from_attribute(self.input_names))
        return list(zip(names, self.block.args, strict=True))

    @property
    def sizes(self) -> dict[str, int]:
        """The inputs that are sizes of a run, with the most that each may be."""
        listed = () if self.size_inputs is None else from_attribute(self.size_inputs)
        return dict(cast("tuple[tuple[str, int], ...]", listed))

    @property
    def output_op(self) -> OutputOp:
        """The operation that ends the network."""
        last = self.block.last_op
        if not isinstance(last, OutputOp):
            raise VerifyException("graph.network must end with graph.output")
        return last

    @property
    def outputs(self) -> list[tuple[str, SSAValue]]:
        """Names and values of the outputs, as in the model."""
        names = cast("tuple[str, ...]", from_attribute(self.output_names))
        return list(zip(names, self.output_op.values, strict=True))

    def verify_(self) -> None:
        """Check the names against the block, and the order of the operations."""
        if len(names_in(self.input_names, "input_names")) != len(self.block.args):
            raise VerifyException("graph.network: one name per input is needed")
        if len(names_in(self.output_names, "output_names")) != len(self.output_op.values):
            raise VerifyException("graph.network: one name per output is needed")
        for argument in self.block.args:
            tensor_type(argument)
        check_order(self.block, "graph.network")


def network_of(module: AnyOperation) -> NetworkOp:
    """The one network in a module; raises VerifyException if there is not exactly one."""
    inside = (op for region in module.regions for block in region.blocks for op in block.ops)
    networks = [op for op in (module, *inside) if isinstance(op, NetworkOp)]
    if len(networks) != 1:
        raise VerifyException(f"expected one graph.network, found {len(networks)}")
    return networks[0]
