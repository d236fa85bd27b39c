"""Elementwise kernels from their tile programs, without a network around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import prod

from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Role, Stage
from tilewright.targets.ascend.elements import as_elements, as_folds, as_rows, ended
from tilewright.targets.ascend.formats import image, matrices, padded
from tilewright.targets.ascend.grids import GridPlans
from tilewright.targets.ascend.isa import ELEMENTS
from tilewright.targets.ascend.kernels.folds import FOLD_OF
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.kernels.recipes import recipe_of
from tilewright.targets.ascend.kernels.vectors import BOOLEAN
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.lowering.elements import Elements, Function
from tilewright.targets.ascend.lowering.folded import Folded
from tilewright.targets.ascend.lowering.normal import Normal
from tilewright.targets.ascend.lowering.tiled import tiled_kernel
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.network import chip_machine, network_machine
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.lower import tile

Shape = tuple[int, ...]

NAMES = {c: name for name, c in ELEMENTS.items()}
"""Element types of C -> those of planning."""

STAGES = {1: "relu", 2: "add", 3: "select"}
"""Operations of so many operands, which are planned like any other of as many."""


def described(
    operation: str,
    result: Shape,
    operands: Mapping[str, Shape],
    element: str = "half",
    blocks: Collection[str] = (),
    stored: str = "",
) -> Kernel:
    """As planning sees it, over the dims of the operation."""
    dims = tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(result))

    def operand(name: str, role: Role, shape: Shape, kind: str) -> Operand:
        front = len(result) - len(shape)
        access = tuple(
            Affine(((f"d{front + axis}", 1),)) if extent == result[front + axis] else Affine()
            for axis, extent in enumerate(shape)
        )
        layout = str(matrices(len(shape))) if name in blocks else ""
        return Operand(name, shape, access, NAMES[kind], role, layout=layout)  # type: ignore[arg-type]

    roles: tuple[Role, ...] = ("input", "weight", "residual")
    read = tuple(
        operand(name, role, shape, BOOLEAN if name == "c" else element)
        for role, (name, shape) in zip(roles, operands.items(), strict=False)
    )
    out = operand("out", "output", result, stored or element)
    return Kernel("kernel", (Stage(operation, dims, read, out),))


def broadcast(
    operation: str,
    result: Shape,
    operands: Mapping[str, Shape],
    core: DaVinci = ASCEND_910,
    *,
    scalars: Sequence[str] = (),
    numbers: Collection[str] = (),
    name: str = "kernel",
    element: str = "float",
    blocks: Collection[str] = (),
    free: int | None = None,
    cores: int = 1,
) -> Program:
    """The kernel of a recipe on elements of these shapes, by operand, with the flags of its tile
    program. ``numbers`` are single ones of which main memory has blocks, ``blocks`` the operands in
    Nz, perhaps out; ``free`` is the axis of which a launch has a length of its own."""
    recipe = recipe_of(operation, core)
    assert recipe is not None
    shapes = {**operands, **dict.fromkeys(numbers, ())}
    stage = operation if operation in ("less", "less_equal", "equal") else STAGES[len(shapes)]
    of = described(stage, result, shapes, element, blocks, recipe.types[element])
    formed = as_elements(of)
    program = tiled(formed, core, cores)
    function = Function(recipe, tuple(scalars), tuple(shapes), frozenset(numbers))
    ends, longest = {}, 0
    if free is not None:
        ends, longest = ended(of, formed, frozenset({f"d{free}"})), result[free]
    return tiled_kernel(program, core, name, partial(Elements, core, [function]), ends, longest)


def tiled(formed: Kernel, core: DaVinci, cores: int) -> ProgramOp:
    """The tile program of a kernel for so many cores."""
    machine = network_machine(core) if cores == 1 else chip_machine(core)
    machine = machine.model_copy(update={"cores": cores})
    plan = GridPlans(machine, None)(formed) or Planner(machine).plan(formed)
    return tile(formed, plan.schedule, machine, honours=AscendTarget.honours)


def elementwise(
    operation: str, element: str, size: int, core: DaVinci = ASCEND_910, **others: object
) -> Program:
    """The same of operands that have so many elements each."""
    recipe = recipe_of(operation, core)
    assert recipe is not None
    operands = dict.fromkeys(("x", "y")[: recipe.operands], (size,))
    return broadcast(operation, (size,), operands, core, element=element, **others)  # type: ignore[arg-type]


def normal(
    shape: Shape,
    core: DaVinci = ASCEND_910,
    norm: Norm | None = None,
    lines: Sequence[str] = (),
    *,
    axis: int = -1,
    element: str = "float",
    blocks: bool = False,
    free: int | None = None,
    cores: int = 1,
) -> Program:
    """The kernel of a softmax along an axis, or of a layer normalisation with ``lines``, scale and
    shift, with the flags of its tile program; ``blocks`` are matrices in Nz."""
    names = [f"d{number}" for number in range(len(shape))]
    names[axis] = "axis"
    reduced = Dim("axis", shape[axis], "reduction")
    kept = [Dim(n, e) for n, e in zip(names, shape, strict=True) if n != "axis"]
    layout = str(matrices(len(shape))) if blocks else ""
    access = tuple(Affine(((name, 1),)) for name in names)
    line = (Affine((("axis", 1),)),)

    def operand(name: str, role: Role) -> Operand:
        own = role in ("input", "output")
        sizes, axes = (shape, access) if own else (shape[-1:], line)
        form = layout if own else ""
        return Operand(name, sizes, axes, NAMES[element], role, layout=form)  # type: ignore[arg-type]

    roles: tuple[Role, ...] = ("input", "weight", "bias")
    read = tuple(operand(*pair) for pair in zip(("x", *lines), roles, strict=False))
    operation = "softmax" if norm is None else "layer_norm"
    stage = Stage(operation, (*kept, reduced), read, operand("out", "output"))
    of = Kernel("kernel", (stage,))
    formed = as_rows(of)
    ends, longest = {}, 0
    if free is not None:
        ends, longest = ended(of, formed, frozenset({names[free]})), shape[free]
    program = tiled(formed, core, cores)
    return tiled_kernel(program, core, "kernel", partial(Normal, core, norm), ends, longest)


def folded(
    operation: str,
    shape: Shape,
    axes: Collection[int],
    core: DaVinci = ASCEND_910,
    *,
    element: str = "float",
    skips: bool = False,
    cores: int = 1,
) -> Program:
    """The kernel of a reduction over some axes, with the flags of its tile program; with ``skips``
    what is no number takes no part."""
    dims = tuple(
        Dim(f"d{axis}", extent, "reduction" if axis in axes else "parallel")
        for axis, extent in enumerate(shape)
    )

    def operand(name: str, role: Role, of: Sequence[Dim]) -> Operand:
        access = tuple(Affine(((dim.name, 1),)) for dim in of)
        sizes = tuple(dim.extent for dim in of)
        return Operand(name, sizes, access, NAMES[element], role)  # type: ignore[arg-type]

    kept = [dim for dim in dims if dim.kind == "parallel"]
    stage = Stage(
        *(operation, dims, (operand("x", "input", dims),), operand("out", "output", kept)),
        attributes=(("skips", skips),),
    )
    program = tiled(as_folds(Kernel("kernel", (stage,))), core, cores)
    count = prod(shape[axis] for axis in axes)
    factor = 1 / count if operation == "reduce_mean" else 1.0
    make = partial(Folded, core, FOLD_OF[operation], factor, skips)
    return tiled_kernel(program, core, "kernel", make)


def pooled(
    operation: str,
    shape: Shape,
    kernel: tuple[int, int],
    core: DaVinci = ASCEND_910,
    *,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: Shape = (0, 0, 0, 0),
    counted: Shape = (0, 0, 0, 0),
    cores: int = 1,
) -> Program:
    """The kernel of a pool of images [n][c][h][w] of halves in NC1HWC0, with the flags of its tile
    program."""
    sizes = [
        (extent + before + after - (size - 1) * dilation - 1) // stride + 1
        for extent, before, after, size, dilation, stride in zip(
            *(shape[2:], pads[:2], pads[2:], kernel, dilations, strides), strict=True
        )
    ]
    outer = shape[0], padded(shape[1])
    extents = dict(zip(("n", "c", "oh", "ow", "kh", "kw"), (*outer, *sizes, *kernel), strict=True))
    dims = tuple(Dim(n, e, "reduction" if n[0] == "k" else "parallel") for n, e in extents.items())
    planes = Affine((("n", 1),)), Affine((("c", 1),))
    windows = tuple(
        Affine(((f"o{letter}", stride), (f"k{letter}", dilation)), -pad)
        for letter, stride, dilation, pad in zip("hw", strides, dilations, pads[:2], strict=True)
    )
    lines = Affine((("oh", 1),)), Affine((("ow", 1),))
    x = Operand("x", (*outer, *shape[2:]), (*planes, *windows), "float16", "input", layout=image())
    out = Operand("out", (*outer, *sizes), (*planes, *lines), "float16", "output", layout=image())
    of = {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    stage = Stage(operation, dims, (x,), out, (*of.items(), ("counted", counted)))
    return cube_kernel(tiled(Kernel("kernel", (stage,)), core, cores), core, "kernel")
