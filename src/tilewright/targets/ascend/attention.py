"""Attention as a chain: a product, the softmax of its rows, and a product.

The graph's operation reads matrices of heads where the products before leave them. Scores are
floats on the chip, weights halves, as sums and operands of products are; the softmax's stage takes
the scale and the mask, too, so that scores are not rounded before they are added.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.targets.ascend.formats import matrices

WEIGHTS = "attention_weights"
"""The softmax of scores times a scale, plus a mask."""

LAST_DIMS = {"e": "co", "t": "ci"}
"""The dims of attention that the chain's last product has under names of its own."""


def as_chain(kernel: Kernel) -> Kernel:
    """An attention as its products with a softmax between; other kernels as they are."""
    anchor = kernel.anchor
    if anchor.operation != "attention":
        return kernel
    queries, keys, values, *mask = anchor.inputs
    extents = anchor.extents
    shape = tuple(extents[dim] for dim in ("b0", "b1", "m", "t"))

    def scores(element: str, suffix: str, last: str) -> Operand:
        access = tuple(Affine(((dim, 1),)) for dim in ("b0", "b1", "m", last))
        name, layout = f"{kernel.symbol}_{suffix}", str(matrices(4))
        return Operand(name, shape, access, element, "output", layout=layout)

    def dims(*names: str, reduced: str, **meaning: str) -> tuple[Dim, ...]:
        kept = [Dim(name, extents[meaning.get(name, name)]) for name in names]
        return (*kept, Dim(reduced, extents[meaning.get(reduced, reduced)], "reduction"))

    def read(operand: Operand, role: str, **names: str) -> Operand:
        access = tuple(
            Affine(tuple((names.get(dim, dim), step) for dim, step in axis.terms), axis.offset)
            for axis in operand.access
        )
        return replace(operand, access=access, role=role)

    first, rows, halves = (
        scores("float32", "scores", "co"),
        scores("float32", "weights", "t"),
        scores("float16", "halves", "t"),
    )
    product = Stage(
        "matmul",
        dims("b0", "b1", "m", "co", reduced="ci", co="t", ci="d"),
        (read(queries, "input", d="ci"), read(keys, "weight", t="co", d="ci")),
        first,
        node=anchor.node,
    )
    weights = Stage(
        WEIGHTS,
        dims("b0", "b1", "m", reduced="t"),
        (read(first, "input", co="t"), *mask),
        rows,
        (("scale", anchor.attribute("scale", 1.0)),),
        anchor.node,
    )
    whole = tuple(replace(dim, kind="parallel") for dim in weights.dims)
    cast = Stage(
        "cast", whole, (replace(rows, role="input"),), halves, (("to", "float16"),), anchor.node
    )
    out = read(anchor.output, "output", e="co")
    last = Stage(
        "matmul",
        dims("b0", "b1", "m", "co", reduced="ci", co="e", ci="t"),
        (read(halves, "input", t="ci"), read(values, "weight", t="ci", e="co")),
        out,
        node=anchor.node,
    )
    last = replace(last, inputs=tuple(replace(o, computed=o.role == "weight") for o in last.inputs))
    scored = Kernel(f"{kernel.symbol}_scores", (product,))
    normalised = Kernel(f"{kernel.symbol}_weights", (weights, cast), producers=(scored,))
    rest = tuple(
        replace(
            stage,
            dims=tuple(replace(dim, name=LAST_DIMS.get(dim.name, dim.name)) for dim in stage.dims),
            inputs=tuple(read(o, o.role, e="co") for o in stage.inputs),
            output=read(stage.output, stage.output.role, e="co"),
        )
        for stage in kernel.stages[1:]
    )
    return replace(kernel, stages=(last, *rest), producers=(normalised,))
