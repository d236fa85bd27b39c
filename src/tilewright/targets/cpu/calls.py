"""A kernel's C with what it is called on: where the operands lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilewright.codegen.c.parameters import Parameter, Place
from tilewright.errors import refuse
from tilewright.ir.types import element_dtype, shape_of, tensor_type
from tilewright.targets.base import CompiledKernel
from tilewright.targets.cpu.program import ALIGNMENT
from tilewright.targets.cpu.walk import KernelSource, kernel_source
from tilewright.tile.dialect import TensorOp, programs_of


@dataclass(frozen=True)
class KernelCall:
    """One kernel of the network, its C, and what that is called on."""

    kernel: CompiledKernel
    source: KernelSource
    places: Mapping[str, Place]
    """Arena and offset of the parameters' tensors, as far as these have a place."""
    scratch: Mapping[str, int]
    """Bytes of those that only this kernel works in."""

    @classmethod
    def of(cls, kernel: CompiledKernel, lanes: int) -> KernelCall:
        """The call of a kernel that has a tile program; ``lanes`` is the width of a vector.

        Raises TilewrightError.
        """
        if kernel.program is None:
            raise refuse("cpu-program", "has no tile program", kernel.kernel.symbol)
        source = kernel_source(kernel.program, lanes)
        tensors = programs_of(kernel.program)[0].tensors
        places = {
            name: (op.arena.data, op.offset.value.data)
            for name, op in tensors.items()
            if op.arena is not None and op.offset is not None
        }
        scratch = {name: _bytes(op) for name, op in tensors.items() if op.role.data == "scratch"}
        return cls(kernel, source, places, scratch)

    def place(self, parameter: Parameter) -> Place:
        """Arena and offset of a parameter's tensor; raises TilewrightError without a place."""
        place = self.places.get(parameter.tensor)
        if place is None:
            raise refuse("cpu-placement", "has no place in memory", parameter.tensor)
        return place

    def arguments(self, activations: str = "activations") -> list[str]:
        """C of the arguments, of which all lie in arenas; raises TilewrightError."""
        return [each.pointer_to(self.place(each), activations) for each in self.source.parameters]

    def divided_arguments(self, activations: str) -> tuple[tuple[str, ...], int]:
        """The arguments where threads may share the call, and the bytes of scratch that each
        further thread then needs of its own."""
        arguments: list[str] = []
        scratch = 0
        for parameter in self.source.parameters:
            if self.source.shared and parameter.tensor in self.scratch:
                _, offset = self.place(parameter)
                place = f"(part ? FURTHER_SCRATCH(part) + {scratch} : {offset})"
                arguments.append(parameter.cast(f"{activations} + {place}"))
                scratch += -(-self.scratch[parameter.tensor] // ALIGNMENT) * ALIGNMENT
            else:
                arguments.append(parameter.pointer_to(self.place(parameter), activations))
        return tuple(arguments), scratch


def _bytes(op: TensorOp) -> int:
    element = element_dtype(tensor_type(op.result).element_type)
    return prod(shape_of(op.result)) * element.itemsize
