"""Stages between halves and integers of 8 bits.

Where integers lie in blocks, halves lie in blocks of half as many columns, and one kernel converts
between these (kernels/quantise.py); it also quantises matrices that come in rows. Halves in other
formats change their format before or behind it. Rows of integers are computed row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.planning.domain import Operand, Stage
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import image, matrices
from tilewright.targets.ascend.kernels.portions import portions
from tilewright.targets.ascend.kernels.quantise import PAIR, Blocks, converted
from tilewright.targets.ascend.kernels.recipes import NAMES, is_power, recipe_of, scalars_of
from tilewright.targets.ascend.kernels.shares import joined
from tilewright.targets.ascend.kernels.vectors import number
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.lowering.moves import relay
from tilewright.targets.ascend.lowering.points import alike
from tilewright.targets.ascend.machine import CUBE


def layout_of_halves(layout: str, rank: int) -> str | None:
    """The layout of halves that goes with one of integers: blocks of as many rows or positions;
    None where the integers lie in others."""
    parsed = Layout.parse(layout, rank)
    if parsed.row_major:
        return ""
    if rank == 4 and parsed == Layout.parse(image(1), rank):
        return image()
    if rank > 1 and parsed == matrices(rank, element_bytes=1):
        return str(matrices(rank))
    return None


def in_rows(shape: Sequence[int]) -> bool:
    """Return True if a matrix's rows are whole blocks, of which one kernel makes blocks of
    integers."""
    return shape[-1] % PAIR == 0 and shape[-2] % CUBE == 0


def one_kernel(source: Operand, result: Operand) -> bool:
    """Return True if a single kernel computes a stage, whose blocks several cores may share."""
    halves, integers = (source, result) if result.element == "int8" else (result, source)
    rank = len(result.shape)
    wanted = layout_of_halves(integers.layout, rank)
    if wanted is None:
        return False
    given = Layout.parse(halves.layout, rank)
    if given == Layout.parse(wanted, rank):
        return True
    matrix = bool(wanted) and wanted != image()
    return given.row_major and matrix and halves is source and in_rows(source.shape)


def quantised(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launches of a stage that quantises or dequantises; see ``STAGES``."""
    x, operation = operands[0], NAMES[stage.operation]
    attributes = dict(stage.attributes)
    if operation == "quantise" and is_power(float(str(attributes["scale"]))):
        operation = "quantise_power"
    recipe = recipe_of(operation, launches.core)
    if recipe is None:
        raise launches.refusal(
            f"{launches.core.name} has no division, and quotients have to be exact",
            "a scale that is a power of two",
        )
    kind = recipe.types.get(x.element)
    if kind is None or (target is not None and target.element != kind):
        raise launches.refusal(f"there is no kernel for {stage.operation} of {x.element}")
    scalars = [number(value) for value in scalars_of(stage.operation, attributes)]
    for operand in stage.inputs[1:]:
        factor = alike(launches, operand)
        if factor is None:
            raise launches.refusal("there is no kernel for several scales")
        scalars.append(number(factor))
    result = target or launches.buffer(x.shape, kind, "" if kind == "half" else x.layout)
    wanted = layout_of_halves(result.layout if kind == "int8_t" else x.layout, len(x.shape))
    if wanted is None:
        raise launches.refusal(f"integers in {x.layout or result.layout} have no kernel")
    end = result
    if kind == "int8_t":
        plain = bool(wanted) and not x.layout and wanted != image() and in_rows(x.shape)
        if not plain and x.layout != wanted:
            x = relay(launches, stage, [x], launches.buffer(x.shape, x.element, wanted))
    else:
        plain = False
        if result.layout != wanted:
            end = launches.buffer(x.shape, kind, wanted)
    name = launches.name(operation)
    if not wanted:
        program = portions(
            *(operation, x.element, launches.elements(stage.output, ""), launches.core),
            scalars=tuple(scalars),
            name=name,
        )
    else:
        of = _blocks(launches, stage.output, wanted, plain)
        program = converted(of, operation, scalars, launches.core, name)
    launches.launch(program, x, end)
    return result if end is result else relay(launches, stage, [end], result)


def _blocks(launches: Launches, result: Operand, halves: str, plain: bool) -> Blocks:
    """A tensor's blocks, as blocks of a launch share them; where the kernel has no grid, as many as
    there are cores."""
    shape, gridless = result.shape, not launches.grid
    axes = list(zip(result.access, shape, strict=True))
    if halves == image():
        channels = -(-shape[1] // CUBE)
        if gridless:
            sizes = {"batch": shape[0], "pair": -(-shape[1] // PAIR), "position": prod(shape[2:])}
            batch, pairs, positions = launches.own(**sizes)
            return Blocks(batch, positions, pairs, channels)
        area = joined([launches.extent(*axis) for axis in axes[2:]])
        return Blocks(launches.extent(*axes[0]), area, launches.extent(*axes[1], PAIR), channels)
    columns = -(-shape[-1] // CUBE)
    if gridless:
        sizes = {
            "batch": prod(shape[:-2]),
            "pair": -(-shape[-1] // PAIR),
            "line": -(-shape[-2] // CUBE),
        }
        batch, pairs, lines = launches.own(**sizes)
    else:
        batch = joined([launches.extent(*axis) for axis in axes[:-2]])
        pairs, lines = launches.extent(*axes[-1], PAIR), launches.extent(*axes[-2], CUBE)
    return Blocks(batch, joined((lines, CUBE)), pairs, columns, plain)
