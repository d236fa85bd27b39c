"""Writing a package with free dims: the model as it came, and what compiling it takes.

The model is kept, not an imported graph: the graph dialect has sizes only, because what a network
is depends on them (shape arithmetic, branches, which kernels and layouts pay). The front-end stays
the one reader of models, and a shape's package is what ``compile`` makes for that shape.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tilewright
from tilewright.errors import refuse
from tilewright.frontends import Opened
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.numerics.formats import Numbers
from tilewright.runtime.manifest import MODEL, FreeDim, Manifest, OpenModel, Tensor
from tilewright.shapes.lists import Lists
from tilewright.shapes.settlement import Settled, TensorDims

UNKNOWN = "?"
"""Stands for an output's dim that is no free dim of the inputs."""


UNRANKED = "..."
"""Stands for all dims of an output whose rank the model does not state."""


@dataclass(frozen=True)
class Recipe:
    """The options with which each shape is compiled."""

    target: str
    machine: Machine
    exact_memory: bool = False
    ranges: Mapping[str, tuple[float, float]] | None = None
    """Calibrated ranges of values, where the caller gave samples."""
    notes: tuple[str, ...] = ()
    numbers: Numbers | None = None
    factors: Mapping[str, Array] | None = None
    """The divisors of the channels of values."""
    name: str = ""
    """The name of packages' functions and files; by default the model's."""


def write_open_package(
    directory: Path, *, source: Opened, settled: Settled, recipe: Recipe
) -> None:
    """Fill an empty directory; raises TilewrightError. The same input gives the same bytes."""
    files = source.files()
    for name, path in files.items():
        place = directory / MODEL / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        except OSError as error:
            raise refuse("output-failed", str(error), str(place)) from error
    inputs = source.signature.inputs
    stated = {t.name: t for item in inputs for t in item.tensors(settled.lengths)}
    Manifest(
        tilewright=tilewright.__version__,
        target=recipe.target,
        machine=recipe.machine.model_dump(mode="json", exclude_none=True),
        model=recipe.name or source.name,
        element=recipe.machine.element,
        inputs=tuple(
            Tensor(name=name, shape=dims, dtype=stated[name].dtype)
            for name, dims in settled.inputs.items()
        ),
        outputs=tuple(_output(tensor, settled) for tensor in source.signature.outputs),
        lists=Lists(inputs=dict(settled.lengths)),
        kernels=(),
        peak_memory_bytes=0,
        activation_bytes=0,
        lower_bound_memory_bytes=0,
        notes=recipe.notes,
        open_model=OpenModel(
            file=f"{MODEL}/{next(iter(files))}",
            dims=tuple(
                FreeDim(name=name, low=bounds.low, high=bounds.high, step=bounds.step)
                for name, bounds in settled.free.items()
            ),
            rooms=dict(settled.rooms),
            exact_memory=recipe.exact_memory,
            ranges=None if recipe.ranges is None else _finite(recipe.ranges),
            factors=None if recipe.factors is None else _plain(recipe.factors),
            numbers=None if recipe.numbers is None else recipe.numbers.names,
        ),
    ).write(directory)


def _output(tensor: TensorDims, settled: Settled) -> Tensor:
    """An output as far as the model declares it, in the inputs' free dims."""
    named = (d if isinstance(d, int) else settled.names.get(d, UNKNOWN) for d in tensor.dims or ())
    dims = (UNRANKED,) if tensor.dims is None else tuple(named)
    return Tensor(name=tensor.name, shape=dims, dtype=tensor.dtype)


def _plain(factors: Mapping[str, Array]) -> dict[str, tuple[float, ...]]:
    """Factors as plain numbers."""
    return {name: tuple(map(float, values)) for name, values in factors.items()}


def _finite(ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The ranges of which both bounds are finite."""
    return {name: bounds for name, bounds in ranges.items() if all(map(math.isfinite, bounds))}
