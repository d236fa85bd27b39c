"""The MPE's part of a layer: LAYER.h, LAYER_para.h and LAYER.c.

The structure of the parameters is seen by two files alone, LAYER.c and LAYER_slave.c; everyone else
calls a layer as an ordinary function of its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.c.parameters import Parameter
from tilewright.codegen.c.source import comment


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
    guard = f"{layer.name.upper()}_H"
    sized = any(each.c_type.endswith("_t") for each in layer.parameters)
    about = "".join(f"/* {p.pointer}: {comment(p.tensor)} */\n" for p in layer.parameters)
    return f"""\
/* {layer.about} */
#ifndef {guard}
#define {guard}

{"#include <stdint.h>" + chr(10) * 2 if sized else ""}{about}{layer.prototype};

#endif
"""


def parameters_text(layer: LayerHead) -> str:
    """Return the text of LAYER_para.h: the parameters that the MPE passes to the CPEs."""
    guard = f"{layer.name.upper()}_PARA_H"
    members = [f"{p.declaration}; /* {comment(p.tensor)} */" for p in layer.parameters]
    members += ["long group; /* the core group's number */"] if layer.grouped else []
    listed = "\n    ".join(members)
    return f"""\
/* What the MPE tells the CPEs of {layer.about}. */
#ifndef {guard}
#define {guard}

struct {layer.name}_para {{
    {listed}
}};

#endif
"""


def wrapper_text(layer: LayerHead) -> str:
    """LAYER.c of a layer on the CPEs."""
    name = layer.name
    members = [each.pointer for each in layer.parameters] + ["group"] * layer.grouped
    filled = "\n    ".join(f"para.{member} = {member};" for member in members)
    return f"""\
/* {layer.about}: the MPE's part. */
#include <athread.h>

#include "{name}.h"
#include "{name}_para.h"

extern void SLAVE_FUN({name}_slave)(void *);

{layer.prototype} {{
    struct {name}_para para;
    {filled}
    athread_spawn({name}_slave, &para);
    athread_join();
}}
"""
