"""How far a run's outputs are from the model as it was written: docs/number-formats.md has the rule.

The graph as it was imported, before any pass, is evaluated in the model's own types. Nothing that
the compiler did to the network has a part in that, so what a pass changes is seen here, where the
meaning of the final graph changes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import GraphOperation, KernelOp, NetworkOp, network_of
from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.passes.editing import VIEWS
from tilewright.graph.represented import ends_of, grid_of
from tilewright.graph.sensitivity import is_float, rounding_errors
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import Array, FixedType, element_name, tensor_type
from tilewright.numerics.element_types import ElementType
from tilewright.numerics.precision import PRECISIONS, Precision, coarsest
from tilewright.numerics.tables import FUNCTIONS

ModelSource = Callable[[], "tuple[ModuleOp, WeightSource]"]
"""Gives the model as it was written: its graph before any pass, and its constants."""

LARGEST = 8.0
"""How often the root-mean-square error that is expected the largest error of an output may be."""

USUAL = 2.0
"""The same of the root-mean-square error itself: weights are rounded, too."""

MAGNIFIED = 4.0
"""How often the errors of runs with operands that were rounded at random an output's may be."""

TABLED = (*FUNCTIONS, "softmax", "log_softmax", "lrn", "div", "pow", "reciprocal")
"""Operations that fixed point computes by tables."""

OFF_GRID = 0.125
"""Of a step of the grid that a model rounds an output to: results this far from it were not
rounded. Floats of 16 bits and sums in another order stay below."""


@dataclass(frozen=True)
class OutputError:
    """One output of a run beside the model's."""

    name: str
    largest: float
    """The model's largest finite magnitude."""
    max_error: float
    rms_error: float
    """Root mean square; both errors are infinite where one has a number and the other has none."""
    max_allowed: float
    rms_allowed: float
    saturated: int
    """Elements of the run that are the largest or the least number of their format."""
    clipped: int
    """Elements of the model that are beyond these numbers."""
    off_grid: int
    """Elements of the run that the model would have rounded (to a grid that it states)."""
    size: int

    @property
    def passed(self) -> bool:
        """Whether the errors are within their bounds."""
        within = self.max_error <= self.max_allowed and self.rms_error <= self.rms_allowed
        return within and not self.off_grid


@dataclass(frozen=True)
class ModelCheck:
    """How far the outputs of a run are from the model as it was written."""

    element: str
    """The number format whose bound holds: the coarsest that the network is computed in."""
    outputs: tuple[OutputError, ...]
    passed: bool
    reason: str = ""
    """Why the model was not evaluated, where it was not; ``passed`` then says nothing."""

    def __str__(self) -> str:
        """One line where all is well, else a table of the outputs."""
        if self.reason:
            return f"the model as it was written: not compared, {self.reason}"
        if self.passed:
            worst = max(self.outputs, key=_share, default=None)
            if worst is None:
                return "the model as it was written: no outputs"
            counts = "".join(
                f", {sum(getattr(row, kind) for row in self.outputs):,} {kind}"
                for kind in ("saturated", "clipped")
                if any(getattr(row, kind) for row in self.outputs)
            )
            return (
                f"the model as it was written: largest error {worst.max_error:.3g} of "
                f"{worst.largest:.3g}, root mean square {worst.rms_error:.3g}{counts} "
                f"(within the bound of {self.element})"
            )
        heads = ["output", "largest", "max error", "allowed", "rms error", "allowed"]
        heads += ["saturated", "clipped", "off grid", "elements"]
        table = [heads, *map(_cells, self.outputs)]
        widths = [max(len(row[place]) for row in table) for place in range(len(heads))]
        lines = [f"the model as it was written: beyond the bound of {self.element}"]
        for number, row in enumerate(table):
            mark = "  <" if number and not self.outputs[number - 1].passed else ""
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            lines.append(f"  {'  '.join(cells)}{mark}")
        return "\n".join(lines)


def _share(row: OutputError) -> float:
    return row.max_error / row.largest if row.largest else row.max_error


def _cells(row: OutputError) -> list[str]:
    name = "".join(c if c.isprintable() else "\ufffd" for c in row.name)
    numbers = (row.largest, row.max_error, row.max_allowed, row.rms_error, row.rms_allowed)
    counts = (row.saturated, row.clipped, row.off_grid, row.size)
    return [name, *(f"{number:.3g}" for number in numbers), *(f"{count:,}" for count in counts)]


def beside_model(
    source: ModelSource | None,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    *,
    final: ModuleOp,
    weights: WeightSource,
) -> ModelCheck:
    """Compare ``outputs`` of a run with the model that ``source`` gives.

    ``final`` is the graph that was run, with its ``weights``: it says in which numbers.
    """
    network = network_of(final)
    element = coarsest(_elements(network))
    if source is None:
        return ModelCheck(element, (), True, "it is not at hand (--model FILE names it)")
    try:
        module, constants = source()
        with np.errstate(all="ignore"):
            wanted = interpret(module, constants, inputs)
    except MemoryError:
        return ModelCheck(element, (), True, "its values do not fit into memory")
    except (TilewrightError, OSError) as error:
        return ModelCheck(element, (), True, f"it cannot be evaluated: {error}")
    model = network_of(module)
    precision = PRECISIONS[element]
    expected = precision.expected(depth(model), _tables(network))
    values = dict(network.outputs)
    grids = {name: grid_of(value, constants) for name, value in model.outputs}
    rows = [
        _row(name, want, outputs[name], ends_of(values[name], weights), expected, grids[name])
        for name, want in wanted.items()
    ]
    if any(_magnified(row) for row in rows):
        errors = rounding_errors(
            module, constants, inputs, wanted, precision.step, relative=precision.relative
        )
        rows = [_with(row, *errors[row.name], precision) for row in rows]
    return ModelCheck(element, tuple(rows), all(row.passed for row in rows))


def depth(network: NetworkOp) -> int:
    """Operations on the longest way from an input to an output, but for those that move values."""
    deep: dict[SSAValue, int] = {}
    for op in network.block.ops:
        if isinstance(op, GraphOperation):
            before = max((deep.get(value, 0) for value in op.inputs), default=0)
            deep[op.result] = before + (op.name.removeprefix("graph.") not in VIEWS)
    return max((deep.get(value, 0) for _, value in network.outputs), default=0)


def _tables(network: NetworkOp) -> int:
    """The operations of fixed point that look functions up in tables."""
    return sum(
        isinstance(tensor_type(value).element_type, FixedType)
        for op in network.walk()
        if isinstance(op, GraphOperation) and op.name.removeprefix("graph.") in TABLED
        for value in op.inputs[:1]
    )


def _elements(network: NetworkOp) -> set[ElementType]:
    """The element types of what a network's operations give."""
    return {
        element_name(tensor_type(op.result).element_type)
        for op in network.walk()
        if isinstance(op, GraphOperation | KernelOp)
    }


def _row(
    name: str,
    want: Array,
    run: Array,
    ends: tuple[float, float] | None,
    expected: float,
    grid: Array | None,
) -> OutputError:
    wide, got = want.astype(np.float64), run.astype(np.float64)
    finite = np.isfinite(wide)
    largest = float(np.abs(wide[finite]).max(initial=0.0))
    if wide.shape != got.shape:
        worst = usual = np.inf
    else:
        same = (wide == got) | (np.isnan(wide) & np.isnan(got))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(got - wide))
        error = np.where(np.isnan(error), np.inf, error)
        worst = float(error.max(initial=0.0))
        usual = float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
    saturated = clipped = 0
    if ends is not None:
        saturated = int(np.count_nonzero((got <= ends[0]) | (got >= ends[1])))
        clipped = int(np.count_nonzero((wide < ends[0]) | (wide > ends[1])))
    allowed = expected * largest if is_float(want) else 0.0
    off_grid = 0
    if grid is not None and wide.shape == got.shape and _says(grid, allowed):
        with np.errstate(invalid="ignore"):
            steps = got / grid
            off_grid = int(np.count_nonzero(np.abs(steps - np.rint(steps)) > OFF_GRID))
    return OutputError(
        name, largest, worst, usual, LARGEST * allowed, USUAL * allowed, saturated, clipped,
        off_grid, want.size,
    )  # fmt: skip


def _says(grid: Array, allowed: float) -> bool:
    """Whether the format in which a network ran can say the numbers of a grid: powers of two."""
    powers = np.frexp(grid)[0] == 0.5  # noqa: PLR2004 -- of a power of two
    return bool(powers.all()) or allowed <= OFF_GRID * float(grid.min())


def _magnified(row: OutputError) -> bool:
    """Whether roundings may have been magnified on the way to an output, so that it is measured."""
    return row.max_error > row.max_allowed or row.rms_error > row.rms_allowed


def _with(row: OutputError, worst: float, usual: float, precision: Precision) -> OutputError:
    """A row whose bounds follow what rounded operands do to the model, up to the format's most."""
    most = precision.most * row.largest if isfinite(precision.most) else inf
    return replace(
        row,
        max_allowed=max(row.max_allowed, min(MAGNIFIED * worst, LARGEST * most)),
        rms_allowed=max(row.rms_allowed, min(MAGNIFIED * usual, most)),
    )
