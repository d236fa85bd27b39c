"""Kernels that move elements, from their tile programs, without a network around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.targets.ascend.element_kernels import NAMES, Shape, tiled

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.ir import ModuleOp
from tilewright.planning import Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage, Value
from tilewright.planning.schedule import Schedule
from tilewright.targets.ascend.elements import as_elements
from tilewright.targets.ascend.grids import GridPlans
from tilewright.targets.ascend.lower import lower_kernel
from tilewright.targets.ascend.lowering.launches import Device
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.moves import as_moves
from tilewright.targets.ascend.network import chip_machine, network_machine
from tilewright.targets.ascend.program import Program


def move_program(
    of: Kernel,
    core: DaVinci = ASCEND_910,
    cores: int = 1,
    free: frozenset[str] = frozenset(),
    known: Mapping[str, NDArray[Any]] | None = None,
) -> Program:
    """A kernel with its flags, on so many cores; ``known`` are constants."""
    formed = as_moves(as_elements(of))
    machine = network_machine(core) if cores == 1 else chip_machine(core)
    machine = machine.model_copy(update={"cores": cores})
    plan = GridPlans(machine, None)(formed) or Planner(machine).plan(formed)
    schedule: Schedule = plan.schedule
    module = ModuleOp([tiled(formed, core, cores)])
    device = Device(core)
    lower_kernel(device, CompiledKernel(formed, schedule, module), known or {}, free, original=of)
    (program,) = device.programs.values()
    return program


def _kernel(
    operation: str,
    shape: Shape,
    access: Sequence[Affine],
    result: Shape,
    element: str = "half",
    layouts: tuple[str, str] = ("", ""),
    **attributes: Value,
) -> Kernel:
    """A kernel that reads an operand of some shape over the dims of its result."""
    dims = tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(result))
    x = Operand("x", shape, tuple(access), NAMES[element], "input", layout=layouts[0])  # type: ignore[arg-type]
    rows = tuple(Affine(((dim.name, 1),)) for dim in dims)
    out = Operand("out", result, rows, NAMES[element], "output", layout=layouts[1])  # type: ignore[arg-type]
    return Kernel("kernel", (Stage(operation, dims, (x,), out, tuple(attributes.items())),))


def transposed(shape: Shape, order: Sequence[int], element: str = "half") -> Kernel:
    """Axes in another order."""
    access = [Affine(((f"d{list(order).index(axis)}", 1),)) for axis in range(len(shape))]
    return _kernel("transpose", shape, access, tuple(shape[n] for n in order), element)


def sliced(shape: Shape, taken: Sequence[range], element: str = "half") -> Kernel:
    """Some indices of each axis."""
    access = [Affine(((f"d{n}", part.step),), part.start) for n, part in enumerate(taken)]
    return _kernel("slice", shape, access, tuple(map(len, taken)), element)


def surrounded(shape: Shape, pads: Shape, value: float, element: str = "half") -> Kernel:
    """Elements around each axis: before all, then behind all."""
    rank = len(shape)
    result = tuple(extent + pads[n] + pads[rank + n] for n, extent in enumerate(shape))
    access = [Affine(((f"d{n}", 1),), -pads[n]) for n in range(rank)]
    return _kernel("pad", shape, access, result, element, pads=pads, value=value)


def relaid(shape: Shape, source: str, target: str, element: str = "half") -> Kernel:
    """The same tensor in another layout."""
    access = [Affine(((f"d{n}", 1),)) for n in range(len(shape))]
    return _kernel("convert_layout", shape, access, shape, element, (source, target))


def requantised(
    operation: str,
    shape: Shape,
    scale: float,
    zero: int,
    layouts: tuple[str, str] = ("", ""),
    cores: int = 1,
) -> Program:
    """The kernel of ``quantise_linear`` or ``dequantise_linear``."""
    back = operation == "dequantise_linear"
    dims = tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(shape))
    rows = tuple(Affine(((dim.name, 1),)) for dim in dims)
    kinds = ("int8", "float16") if back else ("float16", "int8")
    x = Operand("x", shape, rows, kinds[0], "input", layout=layouts[0])  # type: ignore[arg-type]
    factor = Operand("y", (), (), "float32", "residual")
    out = Operand("out", shape, rows, kinds[1], "output", layout=layouts[1])  # type: ignore[arg-type]
    values: dict[str, Value] = {"zero": zero} if back else {"scale": scale, "zero": zero}
    stage = Stage(operation, dims, (x, factor) if back else (x,), out, tuple(values.items()))
    known = {"y": np.float32(scale).reshape(())}
    return move_program(Kernel("kernel", (stage,)), cores=cores, known=known)


def looked_up(outer: int, extent: int, inner: int, count: int, index: str = "int64") -> Kernel:
    """Rows of a table by indices."""
    dims = (Dim("d0", outer), Dim("d1", count), Dim("d2", inner), Dim("v", extent, "reduction"))
    names = {dim.name: Affine(((dim.name, 1),)) for dim in dims}

    def operand(name: str, shape: Shape, axes: str, element: str, role: str) -> Operand:
        access = tuple(names[axis] for axis in axes.split())
        return Operand(name, shape, access, element, role)  # type: ignore[arg-type]

    table = operand("x", (outer, extent, inner), "d0 v d2", "float16", "input")
    places = operand("i", (count,), "d1", index, "input")
    out = operand("out", (outer, count, inner), "d0 d1 d2", "float16", "output")
    return Kernel("kernel", (Stage("gather", dims, (table, places), out),))
