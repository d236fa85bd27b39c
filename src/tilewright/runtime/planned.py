"""A package with free dims at one size, run by a plan that is right for every size up to its own.

Nothing is compiled for the size but the graph that results are checked with. Programs of some plans
take the sizes; those of others have them as inputs, after the model's own, and take arrays that are
as large as the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest, Tensor
from tilewright.shapes.run import sizes_of

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import Runner
    from tilewright.graph.interpreter import Observer
    from tilewright.graph.weights import Weights
    from tilewright.ir import ModuleOp
    from tilewright.ir.types import Array

Reference = Callable[[], "tuple[ModuleOp, Weights]"]
"""Gives the graph at the size, and its constants."""


class PlannedExecutable(Executable):
    """A plan of a package, at a size: see ``Executable``."""

    def __init__(
        self, plan: Executable, package: Manifest, sizes: Mapping[str, int], reference: Reference
    ) -> None:
        """``sizes`` are those of the free dims of the package, which has the plan."""
        inputs, outputs = (
            tuple(_sized(tensor, sizes) for tensor in side)
            for side in (package.inputs, package.outputs)
        )
        manifest = replace(plan.manifest, inputs=inputs, outputs=outputs)
        self._whole = {tensor.name: tensor for tensor in plan.manifest.inputs}
        names = [name for name in self._whole if name not in {tensor.name for tensor in inputs}]
        self._sizes = dict(zip(names, map(np.int64, sizes.values()), strict=bool(names)))
        """The sizes, by the inputs of the plan's program that take them."""
        if [tensor.shape for tensor in inputs] != [t.shape for t in plan.manifest.inputs]:
            # Bounds are those of the plan's size: a shorter run may take less.
            unknown = (
                replace(entry, physical_bound=None, granule_bound=None)
                for entry in manifest.kernels
            )
            manifest = replace(manifest, kernels=tuple(unknown))
        super().__init__(plan.directory, manifest=manifest)
        self._plan, self._interpreted = plan, reference
        self._libraries = plan._libraries
        if self._sizes:
            self._model_sizes = ()  # Only the plan has outputs that say where others end.

    @property
    def runner(self) -> Runner:
        """The plan's runner, which other sizes share."""
        return self._plan.runner

    def run(
        self,
        inputs: Mapping[str, Array] | Any,
        *,
        trace: str | Path | None = None,
        check_races: bool = False,
        observe: Observer | None = None,
        profile: bool = False,
    ) -> dict[str, Array]:
        """Run once on arrays of the size; ``observe`` sees values of the plan's size."""
        inputs = self.named(inputs)
        dims = {info.name: info.shape for info in self.inputs}
        sizes_of(dims, {}, {name: np.shape(array) for name, array in inputs.items()})
        return super().run(
            self._taken(inputs),
            trace=trace,
            check_races=check_races,
            observe=observe,
            profile=profile,
        )

    def _taken(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if not self._sizes:
            return inputs
        taken = {name: self._filled(name, np.asarray(inputs[name])) for name in inputs}
        return taken | {name: np.array(size) for name, size in self._sizes.items()}

    def _filled(self, name: str, array: Array) -> Array:
        """An input with zeros after its ends, as large as the plan."""
        filled = self._whole[name].empty()
        filled[tuple(map(slice, array.shape))] = array
        return filled

    @property
    def graph(self) -> ModuleOp:
        """The final graph of the plan, at the plan's size."""
        return self._plan.graph

    def _read_reference(self) -> tuple[ModuleOp, Weights]:
        if self._sizes:
            return self._plan._read_reference()
        if self._reference is None:
            self._reference = self._interpreted()
        return self._reference


def _sized(tensor: Tensor, sizes: Mapping[str, int]) -> Tensor:
    shape = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in tensor.shape)
    return replace(tensor, shape=shape)
