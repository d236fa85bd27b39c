"""The MPE's part of a layer: LAYER.h, LAYER_para.h and LAYER.c.

The structure of the parameters is seen by two files alone, LAYER.c and LAYER_slave.c; everyone else
calls a layer as an ordinary function of its tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.parameters import Parameter
from tilewright.codegen.c.source import Writer, comment


@dataclass(frozen=True)
class LayerHead:
    """The interface of a layer to its callers."""

    name: str
    nodes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    grouped: bool = False
    """Whether it is told which core group's part it is to compute."""

    @property
    def prototype(self) -> str:
        """The declaration of the layer's C function, without a semicolon."""
        parameters = ["long group"] if self.grouped else []
        parameters += [each.declaration for each in self.parameters]
        return f"void {self.name}({', '.join(parameters)})"

    @property
    def about(self) -> str:
        """The model's nodes, for a comment."""
        return comment(", ".join(self.nodes) or self.name)


def header_text(layer: LayerHead) -> str:
    """Return the text of LAYER.h, which declares the layer's function."""
    writer = Writer()
    guard = f"{layer.name.upper()}_H"
    writer.line(f"/* {layer.about} */")
    writer.line(f"#ifndef {guard}")
    writer.line(f"#define {guard}")
    writer.line()
    if any(each.c_type.endswith("_t") for each in layer.parameters):
        writer.line("#include <stdint.h>")
        writer.line()
    _about_tensors(writer, layer.parameters)
    writer.line(f"{layer.prototype};")
    writer.line()
    writer.line("#endif")
    return str(writer)


def _about_tensors(writer: Writer, parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        writer.line(f"/* {parameter.pointer}: {comment(parameter.tensor)} */")


def parameters_text(layer: LayerHead) -> str:
    """Return the text of LAYER_para.h: the parameters that the MPE passes to the CPEs."""
    writer = Writer()
    guard = f"{layer.name.upper()}_PARA_H"
    writer.line(f"/* What the MPE tells the CPEs of {layer.about}. */")
    writer.line(f"#ifndef {guard}")
    writer.line(f"#define {guard}")
    writer.line()
    with writer.block(f"struct {layer.name}_para"):
        for parameter in layer.parameters:
            writer.line(f"{parameter.declaration}; /* {comment(parameter.tensor)} */")
        if layer.grouped:
            writer.line("long group; /* the core group's number */")
    writer.lines[-1] += ";"
    writer.line()
    writer.line("#endif")
    return str(writer)


def wrapper_text(layer: LayerHead) -> str:
    """LAYER.c of a layer on the CPEs."""
    writer = Writer()
    name = layer.name
    writer.line(f"/* {layer.about}: the MPE's part. */")
    writer.line("#include <athread.h>")
    writer.line()
    writer.line(f'#include "{name}.h"')
    writer.line(f'#include "{name}_para.h"')
    writer.line()
    writer.line(f"extern void SLAVE_FUN({name}_slave)(void *);")
    writer.line()
    with writer.block(layer.prototype):
        writer.line(f"struct {name}_para para;")
        for parameter in layer.parameters:
            writer.line(f"para.{parameter.pointer} = {parameter.pointer};")
        if layer.grouped:
            writer.line("para.group = group;")
        writer.line(f"athread_spawn({name}_slave, &para);")
        writer.line("athread_join();")
    return str(writer)
