"""The MPE's part of a layer: LAYER.h, LAYER_para.h and LAYER.c.

The structure of the parameters is seen by two files alone, LAYER.c and LAYER_slave.c; everyone else
calls a layer as an ordinary function of its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewright.codegen.c.parameters import Parameter
from tilewright.codegen.c.source import comment
from tilewright.system.template import filled

TEMPLATES = Path(__file__).parent / "templates"
"""The folder of the texts of a package's files."""


@dataclass(frozen=True)
class LayerHead:
    """The interface of a layer to its callers."""

    name: str
    nodes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    grouped: bool = False
    """True if it is told which core group's part it is to compute."""

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

    def text(self, template: str) -> str:
        """The text of a file of the layer: ``layer.h`` declares its function, ``layer_para.h`` the
        parameters that the MPE passes to the CPEs, and ``layer.c`` is that of one on the CPEs."""
        members = [f"    {p.declaration}; /* {comment(p.tensor)} */" for p in self.parameters]
        members += ["    long group; /* the core group's number */"] if self.grouped else []
        told = [each.pointer for each in self.parameters] + ["group"] * self.grouped
        return filled(
            TEMPLATES / f"{template}.in",
            name=self.name,
            upper=self.name.upper(),
            about=self.about,
            prototype=self.prototype,
            sized=any(each.c_type.endswith("_t") for each in self.parameters),
            tensors="\n".join(f"/* {p.pointer}: {comment(p.tensor)} */" for p in self.parameters),
            members="\n".join(members),
            told="\n".join(f"    para.{member} = {member};" for member in told),
        )
