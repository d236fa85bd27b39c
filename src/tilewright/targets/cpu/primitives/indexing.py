"""Elements that are found by an index: gathers, scatters, and where an extreme lies.

Each writes what gives ``t``, the anchor's element at the indices in ``variables``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.code import accumulator


def element(instance: Instance, operand: Address, variables: Mapping[str, str], **more: str) -> str:
    """An element of an operand, at the indices in ``variables`` and ``more``."""
    return f"{operand.pointer}[{operand.offset(instance.dims, {**variables, **more})}]"


def _loops(instance: Instance, dim: str, variables: Mapping[str, str], more: str) -> dict[str, str]:
    """The indices with that of the one reduced dim, of which a tile has all."""
    indices = {**variables}
    if instance.dims[dim].size > 1:
        indices[dim] = more
    return indices


def emit_gather(writer: Writer, instance: Instance, variables: Mapping[str, str]) -> None:
    """Read the index, bring it into range, read the element."""
    extent = instance.extents["v"]
    x, places = instance.tensor(0), instance.tensor(1)
    writer.line(f"int64_t at = (int64_t){element(instance, places, variables)};")
    writer.line(f"at += at < 0 ? {extent} : 0;")
    writer.line(f"at = at < 0 ? 0 : at < {extent} ? at : {extent - 1};")
    text = element(instance, x, _loops(instance, "v", variables, "at"))
    writer.line(f"const {x.c_type} t = {text};")


_FOLDS: Mapping[str, str] = {
    "none": "t = {new};",
    "add": "t += {new};",
    "mul": "t *= {new};",
    "max": "t = {new} > t || {new} != {new} ? {new} : t;",
    "min": "t = {new} < t || {new} != {new} ? {new} : t;",
}


def emit_scatter(writer: Writer, instance: Instance, variables: Mapping[str, str]) -> None:
    """Emit a loop over the updates that takes those whose index is this element's row."""
    x, places, updates = (instance.tensor(number) for number in range(3))
    rows, count = instance.extents["d0"], instance.extents["u"]
    reduction = str(instance.anchor.attributes.get("reduction", "none"))
    if reduction != "none":
        _ = accumulator(x.element)  # Elements that C computes on, that is.
    writer.line(f"const int64_t row = {instance.output.index(0, instance.dims, variables)};")
    writer.line(f"{x.c_type} t = {element(instance, x, variables)};")
    with writer.block(f"for (long u_ = 0; u_ < {count}; u_++)"):
        inside = _loops(instance, "u", variables, "u_")
        writer.line(f"const int64_t at = (int64_t){element(instance, places, inside)};")
        writer.line(f"if (at == row || at + {rows} == row)")
        new = element(instance, updates, inside)
        writer.line("    " + _FOLDS[reduction].format(new=new))


def _emit_place(
    relation: str,
) -> Callable[[Writer, Instance, Mapping[str, str]], None]:
    def emit(writer: Writer, instance: Instance, variables: Mapping[str, str]) -> None:
        """Go along the axis, keeping the best so far; nothing is better than a NaN."""
        x, (dim,) = instance.tensor(0), instance.reduction
        _ = accumulator(x.element)  # Elements that C compares, that is.
        last = "=" if instance.anchor.attributes.get("last") else ""
        writer.line("int64_t t = 0;")
        writer.line(f"{x.c_type} most = {element(instance, x, variables)};")
        with writer.block(f"for (long at = 1; at < {instance.extents[dim]}; at++)"):
            text = element(instance, x, _loops(instance, dim, variables, "at"))
            writer.line(f"const {x.c_type} here = {text};")
            nan = ""
            if x.element.startswith("float"):
                nan = " || here != here" + ("" if last else " && most == most")
            with writer.block(f"if (here {relation}{last} most{nan})"):
                writer.line("most = here;")
                writer.line("t = at;")

    return emit


EMITTERS: Mapping[str, Callable[[Writer, Instance, Mapping[str, str]], None]] = {
    "gather": emit_gather,
    "scatter": emit_scatter,
    "arg_max": _emit_place(">"),
    "arg_min": _emit_place("<"),
}
"""Functions that emit the C, by operation."""
