"""Comparison of a run's outputs with the model as it was written (docs/number-formats.md).

The graph as it was imported, before any pass, is evaluated in the model's own types. Nothing that
the compiler did to the network has a part in that, so what a pass changes is seen here, where the
meaning of the final graph changes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, sqrt
from typing import Any, cast

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.operation import Operation
from tilewright.graph.passes.editing import VIEWS
from tilewright.graph.represented import ends_of, grid_of
from tilewright.graph.saturation import ALTOGETHER
from tilewright.graph.sensitivity import is_float, rounding_errors
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import Array, FixedType, element_name, tensor_type
from tilewright.numerics.element_types import ElementType
from tilewright.numerics.precision import PRECISIONS, coarsest
from tilewright.numerics.tables import FUNCTIONS
from tilewright.runtime.texts import printable, table

ModelSource = Callable[[], "tuple[ModuleOp, WeightSource]"]
"""Gives the model as it was written: its graph before any pass, and its constants."""

LARGEST = 8.0
"""The allowed ratio of an output's largest error to the expected root-mean-square error."""

USUAL = 2.0
"""The allowed ratio of the root-mean-square error of many elements: weights are rounded, too. The
ratio of few varies more, by the root of their number, and that of one element is its largest
error."""

MEANINGLESS = 0.5
"""The error of an output's largest magnitude that no bound allows: what is as far off says nothing,
however much the model magnifies roundings."""

MAGNIFIED = 4.0
"""The allowed ratio of an output's error to the errors of runs with randomly rounded operands."""

ADVICE = (
    "    one range holds for a whole tensor: let tilewright diff name the layer that\n"
    "    differs; calibrate with real samples (--calibration) where that is not done"
)
"""Advice where outputs of one scale for a tensor are beyond the bound."""

SPREAD = (
    "    infinities or NaN of the model reached results that do not hang on them:\n"
    "    layers that are computed with zeros in between spread them (docs/faq.md)"
)
"""The reason where infinities spread."""

ENDLESS = (
    "    the model gives infinities or NaN, of which its numbers here have none: leave\n"
    "    the nodes that compute them to the host (--keep-float)"
)
"""The reason where a format of one scale has no such number."""

TABLED = (*FUNCTIONS, "softmax", "log_softmax", "lrn", "div", "pow", "reciprocal")
"""Operations that fixed point computes by tables."""

OFF_GRID = 0.125
"""The part of a step of the grid that a model rounds an output to: results this far from it were
not rounded. Floats of 16 bits and sums in another order stay below."""


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
    not_finite: int
    """Elements of the run that are infinite or NaN where the model's are numbers."""
    size: int

    passed: bool
    """True if the errors are within what is allowed, and nothing is off the grid."""


@dataclass(frozen=True)
class ModelCheck:
    """The outputs of a run compared with the model as it was written."""

    element: str
    """The number format whose bound holds: the coarsest that the network is computed in."""
    outputs: tuple[OutputError, ...]
    passed: bool
    causes: tuple[str, ...] = ()
    """Known reasons, in the words of the report, why outputs are beyond the bound."""
    masked: tuple[str, ...] = ()
    """The softmax nodes with rows that are masked altogether, by numbers beside which the scores
    are lost in the run's numbers; looked for where an output is beyond the format's own bound."""
    reason: str = ""
    """The reason why the model was not evaluated, if it was not; ``passed`` then is False only
    where the model itself gives fewer elements."""

    def __str__(self) -> str:
        """One line where all is well, else a table of the outputs."""
        if self.reason:
            return f"from the model as it was written: not compared, {self.reason}"
        if self.passed and self.outputs:
            row = max(self.outputs, key=lambda row: row.max_error / (row.largest or 1.0))
            return (
                f"from the model: {row.max_error:.3g} of {row.largest:.3g} at most, "
                f"rms {row.rms_error:.3g}{_counted(row)}; bound of {self.element}"
                f"{self._masked()}"
            )
        heads = ["output", "largest", "error", "allowed", "rms", "allowed"]
        head, *rows = table([heads, *map(_cells, self.outputs)], 1)
        lines = [f"from the model as it was written: beyond the bound of {self.element}"]
        lines.append(f"    {head}")
        for text, row in zip(rows, self.outputs, strict=True):
            lines.append(f"    {text}{_counted(row)}{'' if row.passed else '  <'}")
        return "\n".join([*lines, *self.causes]) + self._masked()

    def _masked(self) -> str:
        if not self.masked:
            return ""
        return (
            f"\n    rows of {', '.join(map(printable, self.masked))} are masked altogether, and "
            f"{self.element}\n    has not the digits for scores beside such masks"
        )


def _counted(row: OutputError) -> str:
    """The elements that are counted, of those kinds that there are."""
    kinds = {
        "saturated": row.saturated,
        "clipped": row.clipped,
        "off the grid": row.off_grid,
        "not finite": row.not_finite,
    }
    return "".join(f", {count:,} {kind}" for kind, count in kinds.items() if count)


def _cells(row: OutputError) -> list[str]:
    numbers = (row.largest, row.max_error, row.max_allowed, row.rms_error, row.rms_allowed)
    return [printable(row.name), *(f"{number:.3g}" for number in numbers)]


def beside_model(
    source: ModelSource | None,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    *,
    final: ModuleOp,
    weights: WeightSource,
    cut: Callable[[Mapping[str, Array]], Mapping[str, Array]] = dict,
) -> ModelCheck:
    """Compare ``outputs`` of a run with the model that ``source`` gives.

    ``final`` is the graph that was run, with its ``weights``: it says in which numbers. ``cut``
    ends outputs where their sizes, which are outputs of the network, say.
    """
    network = network_of(final)
    element = coarsest(_elements(network))
    if source is None:
        return ModelCheck(element, (), True, reason="it is not at hand (--model FILE names it)")
    try:
        module, constants = source()
        with np.errstate(all="ignore"):
            whole = interpret(module, constants, inputs)
        wanted = cut(whole)
    except MemoryError:
        return ModelCheck(element, (), True, reason="its values do not fit into memory")
    except (TilewrightError, OSError) as error:
        if isinstance(error, TilewrightError) and error.problems[0].code == "input-part":
            return ModelCheck(element, (), False, reason=f"its results are smaller: {error}")
        return ModelCheck(element, (), True, reason=f"it cannot be evaluated: {error}")
    if wanted.keys() != outputs.keys():
        return ModelCheck(element, (), True, reason=f"its outputs are {', '.join(wanted)}")
    model = network_of(module)
    precision = PRECISIONS[element]
    expected = precision.expected(depth(model), _tables(network))
    values = dict(network.outputs)
    grids = {name: grid_of(value, constants) for name, value in model.outputs}
    rows = [
        _row(name, want, outputs[name], ends_of(values[name], weights), expected, grids[name])
        for name, want in wanted.items()
    ]
    near = all(_within(row) for row in rows)
    if not near:
        errors = rounding_errors(
            module, constants, inputs, whole, precision.step, relative=precision.relative
        )
        rows = [_magnified(row, *errors[row.name], precision.most) for row in rows]
    passed = all(row.passed for row in rows)
    infinite, masked = (False, ()) if near else _looked(module, constants, inputs)
    causes: list[str] = []
    if infinite and any(row.not_finite for row in rows):
        causes.append(SPREAD)
    elif not precision.relative and not passed:
        endless = any(not np.isfinite(want).all() for want in wanted.values() if is_float(want))
        causes += [ENDLESS] if endless else [] if masked else [ADVICE]
    return ModelCheck(element, tuple(rows), passed, tuple(causes), masked)


def _looked(
    module: ModuleOp, constants: WeightSource, inputs: Mapping[str, Array]
) -> tuple[bool, tuple[str, ...]]:
    """Whether a float of the model is infinite or NaN in a run, and its softmax nodes with rows
    that are masked altogether."""
    infinite, masked, names = False, dict[str, None](), value_names(module)
    scores = {
        names[op.inputs[0]]: (op.node_name or names[op.result], int(op.get("axis", -1)))
        for op in network_of(module).operations
        if op.operation == "softmax" and not isinstance(op.inputs[0].owner, WeightOp)
    }

    def look(name: str, array: Array) -> None:
        nonlocal infinite
        infinite = infinite or (is_float(array) and not bool(np.isfinite(array).all()))
        if name in scores:
            node, axis = scores[name]
            if not (array.max(axis=axis) > -ALTOGETHER).all():
                masked[node] = None

    with np.errstate(all="ignore"):
        _ = interpret(module, constants, inputs, look, names=names)
    return infinite, tuple(masked)


def depth(network: NetworkOp) -> int:
    """Operations on the longest way from an input to an output, but for those that move values."""
    deep: dict[SSAValue, int] = {}
    for op in network.operations:
        before = max((deep.get(value, 0) for value in op.inputs), default=0)
        deep[op.result] = before + (op.operation not in VIEWS)
    return max((deep.get(value, 0) for _, value in network.outputs), default=0)


def _tables(network: NetworkOp) -> int:
    """The operations of fixed point that look functions up in tables."""
    return sum(
        isinstance(tensor_type(value).element_type, FixedType)
        for op in network.walk()
        if isinstance(op, Operation) and op.operation in TABLED
        for value in op.inputs[:1]
    )


def _elements(network: NetworkOp) -> set[ElementType]:
    """The element types of what a network's operations give."""
    return {
        element_name(tensor_type(op.result).element_type)
        for op in network.walk()
        if isinstance(op, Operation | KernelOp)
    }


def _row(
    name: str,
    want: Array,
    run: Array,
    ends: tuple[float, float] | None,
    expected: float,
    grid: Array | None,
) -> OutputError:
    """An output beside the model's, within the bound that holds where nothing is magnified."""
    wide, got = want.astype(np.float64), run.astype(np.float64)
    largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    if wide.shape != got.shape:
        return OutputError(name, largest, inf, inf, 0.0, 0.0, 0, 0, 0, 0, want.size, passed=False)
    with np.errstate(invalid="ignore"):
        same = (wide == got) | (np.isnan(wide) & np.isnan(got))
        error = np.where(same, 0.0, np.abs(got - wide))
    error = np.where(np.isnan(error), inf, error)
    worst = float(error.max(initial=0.0))
    usual = float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
    saturated = clipped = off_grid = 0
    if ends is not None:
        cut = ~(same & np.isinf(wide))  # Infinities that are the model's are no end of a format.
        saturated = int(np.count_nonzero(((got <= ends[0]) | (got >= ends[1])) & cut))
        clipped = int(np.count_nonzero(((wide < ends[0]) | (wide > ends[1])) & cut))
    not_finite = int(np.count_nonzero(np.isfinite(wide) & ~np.isfinite(got)))
    allowed = expected * largest if is_float(want) else 0.0
    if grid is not None and _says(grid, allowed):
        with np.errstate(invalid="ignore"):
            off_grid = int(np.count_nonzero(np.abs(got / grid - np.rint(got / grid)) > OFF_GRID))
    often = USUAL + (LARGEST - USUAL) / sqrt(max(1, want.size))
    row = OutputError(
        name, largest, worst, usual, LARGEST * allowed, often * allowed, saturated, clipped,
        off_grid, not_finite, want.size, passed=False,
    )  # fmt: skip
    return replace(row, passed=_within(row) and not off_grid)


def _says(grid: Array, allowed: float) -> bool:
    """Return True if a network's number format can say the numbers of a grid: powers of two."""
    mantissas, _ = np.frexp(grid)
    return bool((mantissas == 0.5).all()) or allowed <= OFF_GRID * float(grid.min())


def _within(row: OutputError) -> bool:
    return row.max_error <= row.max_allowed and row.rms_error <= row.rms_allowed


def _magnified(row: OutputError, worst: float, usual: float, most: float) -> OutputError:
    """A row whose bound follows what rounded operands do to the model, up to the format's most."""
    limit = inf if most == inf else most * row.largest
    end = inf if most == inf else min(LARGEST * most, MEANINGLESS) * row.largest
    row = replace(
        row,
        max_allowed=max(row.max_allowed, min(MAGNIFIED * worst, end)),
        rms_allowed=max(row.rms_allowed, min(MAGNIFIED * usual, limit)),
    )
    return replace(row, passed=_within(row) and not row.off_grid)


def plain_json(row: Any) -> dict[str, Any]:
    """A dataclass for ``--json``; numbers that are not finite are null."""
    return {name: _plain(value) for name, value in asdict(row).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[Any, ...]", value)]
    return value
