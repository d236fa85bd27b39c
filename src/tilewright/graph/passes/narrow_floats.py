"""narrow-floats: what an accelerator reads and writes becomes floats of 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import objection
from tilewright.graph.passes.editing import add_weight, compiler, constant, erase, make, sweep
from tilewright.graph.passes.enclosing import accelerated_values, enclose, symbols_of
from tilewright.graph.passes.insertion import insert_kernel
from tilewright.graph.values import value_names
from tilewright.ir import (
    Context,
    ModuleOp,
    ModulePass,
    PythonValue,
    SSAValue,
    StringAttr,
    f32,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of, tensor, tensor_type
from tilewright.numerics.element_types import rounded

WIDE_OPERANDS = {("conv", 2), ("matmul", 2), ("dequantise_linear", 1)}
"""Operation and operand: biases, which join the sums and are as wide as they are, and the factors
of sums of integers."""


@dataclass(frozen=True)
class NarrowFloats(ModulePass):
    """Give the accelerator's values the machine's floats of 16 bits; sums stay float32.

    Before (machine.element is ``float16``)::

        %y = graph.kernel "k0" (%x, %w, %b) : (tensor<..xf32>, ...) -> tensor<..xf32> {
          %1 = graph.conv %x, %w, %b
          %2 = graph.add %1, %r

    After::

        %h = graph.kernel "k1_cast" (%x) attributes {engine = "host"} { graph.cast to float16 }
        %y = graph.kernel "k0" (%h, %w16, %b) : (tensor<..xf16>, ...) -> tensor<..xf16> {
          %1 = graph.conv ...   : f32
          %2 = graph.add %1, %r16 : f32
          %3 = graph.cast %2 {to = "float16"}
        %d = graph.kernel "k2_cast" (%y) attributes {engine = "host"} { graph.cast to float32 }

    A kernel computes in float32 from its operands to its result, which is rounded once. Biases
    stay float32. Constants are rounded here, those beyond the largest number to it (masks of
    -3.4e38 stay finite). What enters the accelerator is rounded, what leaves it widened: by the
    accelerator, where it has a primitive for casts, or else by the host. The network's inputs and
    outputs and all kernels of the host stay float32. Indices and booleans stay what they are.
    """

    name = "narrow-floats"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context, network = compiler(ctx), network_of(op)
        if context.machine.number.is_short_float:
            _Narrowing(context, network, accelerated_values(network)).run()


@dataclass
class _Narrowing:
    """Builds the network of 16-bit floats beside the one of float32, then drops the latter."""

    ctx: CompilerContext
    network: NetworkOp
    accelerated: set[SSAValue]
    narrow: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Value of float32 -> the same in 16 bits."""
    wide: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Value of 16 bits -> the same widened."""

    def run(self) -> None:
        """Rewrite operation by operation, then drop the old ones."""
        self.symbols = symbols_of(self.network)
        self.names = value_names(self.network)
        old: list[AnyOperation] = []
        for op in list(self.network.block.ops):
            if isinstance(op, KernelOp) and not op.on_host:
                self.narrow[op.result] = self.kernel(op).result
                old.append(op)
            elif isinstance(op, Operation) and op.result in self.accelerated:
                operands = [self.narrow_of(value, op) for value in op.inputs]
                narrowed = make(op.operation, operands, op.values, before=op, like=op)
                self.narrow[op.result] = narrowed.result
                old.append(op)
            elif isinstance(op, OutputOp | KernelOp | Operation):
                for index, value in enumerate(list(op.operands)):
                    if value in self.accelerated:
                        op.operands[index] = self.wide_of(value, op)
        for op in reversed(old):
            erase(op)
        sweep(self.network)

    def narrow_of(self, value: SSAValue, before: AnyOperation) -> SSAValue:
        """A value in 16 bits: rounded here if it is float32; other elements stay."""
        if value not in self.narrow:
            if tensor_type(value).element_type != f32:
                return value
            array = constant(value, self.ctx)
            if array is not None:
                short = rounded(array, self.ctx.machine.number, saturate=True)
                narrowed = add_weight(self.ctx, short, before, self.names[value])
            else:
                narrowed = self.conversion(value, self.rounding, before)
            self.narrow[value] = narrowed
        return self.narrow[value]

    def wide_of(self, value: SSAValue, before: AnyOperation) -> SSAValue:
        """A value of the accelerator as float32, once for all users; other elements stay."""
        if tensor_type(value).element_type != f32:
            return self.narrow[value]
        if value not in self.wide:
            self.wide[value] = self.conversion(
                self.narrow[value], {"to": "float32"}, before, self.names[value]
            )
        return self.wide[value]

    @property
    def rounding(self) -> dict[str, PythonValue]:
        """The attributes of the cast to 16 bits."""
        machine = self.ctx.machine
        to: dict[str, PythonValue] = {"to": machine.element}
        return to | ({"saturate": True} if machine.overflow == "saturate" else {})

    def conversion(
        self,
        value: SSAValue,
        attributes: dict[str, PythonValue],
        before: AnyOperation,
        hint: str = "",
    ) -> SSAValue:
        """The result of a kernel that rounds or widens a value."""
        op = make("cast", [value], attributes, before=before)
        machine, reason = self.ctx.machine, None
        if objection(op, machine) is not None:
            reason = f"{machine.name} reads and writes {machine.element} only"
        name = f"cast_{hint or self.names[value]}"
        return insert_kernel(op, reason, self.ctx, self.symbols, name).result

    def kernel(self, kernel: KernelOp) -> KernelOp:
        """A kernel of 16-bit operands and result, before the one in float32."""
        outer = kernel.outside
        known: dict[SSAValue, SSAValue] = {}
        chain: list[Operation] = []
        for op in kernel.operations:
            operands: list[SSAValue] = []
            for index, value in enumerate(op.inputs):
                if value in known:
                    operands.append(known[value])
                elif (op.operation, index) in WIDE_OPERANDS:
                    operands.append(self.in_float32(outer[value], kernel))
                else:
                    operands.append(self.narrow_of(outer[value], kernel))
            kind = tensor(shape_of(op.result), tensor_type(op.result).element_type)
            narrowed = make(
                op.operation, operands, op.values, before=kernel, like=op, result_type=kind
            )
            chain.append(narrowed)
            known[op.result] = narrowed.result
        last = chain[-1]
        if tensor_type(last.result).element_type == f32:
            chain.append(make("cast", [last.result], self.rounding, before=kernel, like=last))
        chain[0].engine = StringAttr("accelerator")
        return enclose(chain, kernel.symbol.data)

    def in_float32(self, value: SSAValue, before: AnyOperation) -> SSAValue:
        """A bias or a factor in float32; a bias of integers as it is."""
        return self.wide_of(value, before) if value in self.accelerated else value
