"""A kernel's C with what it is called on: where the operands lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.codegen.c.parameters import Parameter, Place
from tilewright.codegen.program.interface import ALIGNMENT, CompiledKernel
from tilewright.errors import refuse
from tilewright.memory.alignment import align_up

KERNEL = "@KERNEL@"
"""Stands for the kernel's name in its own text: equal kernels have equal texts."""


@dataclass(frozen=True)
class KernelSource:
    """C of one kernel: static functions and the kernel itself, named ``KERNEL`` in the text."""

    functions: tuple[str, ...]
    body: str
    parameters: tuple[Parameter, ...]
    operation: str
    shared: bool = False
    """True if the function takes ``part`` and ``parts``: the equal part that it computes."""
    sizes: tuple[str, ...] = ()
    """The sizes of a run that it takes, as C names them."""

    @property
    def prototype(self) -> str:
        """The function's declaration in C, without a semicolon."""
        listed = [parameter.declaration for parameter in self.parameters]
        listed += [f"long {size}" for size in self.sizes]
        listed += ["long part", "long parts"] if self.shared else []
        return f"void {KERNEL}({', '.join(listed)})"

    @property
    def text(self) -> str:
        """The C text of the kernel's function, after its helper functions."""
        return "\n".join([*self.functions, f"{self.prototype}\n{self.body}"])

    def named(self, name: str) -> str:
        """``text`` with the function's name."""
        return self.text.replace(KERNEL, name)

    def declared(self, name: str) -> str:
        """``prototype`` with the function's name."""
        return self.prototype.replace(KERNEL, name)


@dataclass(frozen=True)
class KernelCall:
    """One kernel of the network, its C, and what that is called on."""

    kernel: CompiledKernel
    source: KernelSource
    places: Mapping[str, Place]
    """Arena and offset of the parameters' tensors, as far as these have a place."""
    scratch: Mapping[str, int]
    """Bytes of those that only this kernel works in."""

    @property
    def symbol(self) -> str:
        """The kernel's name, which its function has."""
        return self.kernel.kernel.symbol

    @property
    def text(self) -> str:
        """The C of the kernel under its own name."""
        return self.source.named(self.symbol)

    @property
    def declaration(self) -> str:
        """The declaration of the function of ``text``, without a semicolon."""
        return self.source.declared(self.symbol)

    def place(self, parameter: Parameter) -> Place:
        """Arena and offset of a parameter's tensor; raises TilewrightError without a place."""
        place = self.places.get(parameter.tensor)
        if place is None:
            raise refuse("cpu-placement", "has no place in memory", parameter.tensor)
        return place

    def arguments(self) -> list[str]:
        """C of the arguments, of which all lie in arenas; raises TilewrightError."""
        return [each.pointer_to(self.place(each)) for each in self.source.parameters]

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
                scratch += align_up(self.scratch[parameter.tensor], ALIGNMENT)
            else:
                arguments.append(parameter.pointer_to(self.place(parameter), activations))
        return tuple(arguments), scratch
