"""Packages with free dims: compiled for each shape when it is first used, and kept in a cache.

Such a package keeps the model as it came, once, with its weights; some have plans besides, which
serve every size (planned.py). A shape's sizes are read off the
inputs of a run; the model then goes through the pipeline with the shapes bound, so that
shape arithmetic in the model is folded as for any other model, and every target works as it is.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from tilewright.errors import refuse
from tilewright.runtime.cache import Cache
from tilewright.runtime.digest import compiler_digest
from tilewright.runtime.executable import Executable, Progress, quiet
from tilewright.runtime.manifest import PLANS, PROGRAM, Manifest, plan_name, read_own
from tilewright.runtime.planned import PlannedExecutable
from tilewright.runtime.specialisers import Interpreted, Specialiser, Written, specialisers
from tilewright.runtime.summary import free_dims
from tilewright.shapes.run import check_sizes, sizes_of
from tilewright.targets.base import find_target

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import Profile, Runner
    from tilewright.graph.interpreter import Observer
    from tilewright.graph.weights import Weights
    from tilewright.ir import ModuleOp
    from tilewright.ir.types import Array
    from tilewright.runtime.check import Check
    from tilewright.runtime.model_check import ModelCheck

MOST_LOADED = 16
"""Specialisations that one process keeps loaded."""

MOST_LOADED_BYTES = 4 << 30
"""Bytes of their weights and activations; the one in use may have more."""


class DynamicExecutable(Executable):
    """A package with free dims, ready to run on any admissible shape.

    ``run``, ``reference`` and ``check`` take the sizes from their inputs; ``profile``, ``report``,
    ``summary``, ``graph`` and ``runner`` speak of the specialisation that was used last.
    """

    def __init__(
        self,
        directory: Path,
        *,
        temporary: bool = False,
        manifest: Manifest | None = None,
        cache: Cache | None = None,
        progress: Progress = quiet,
    ) -> None:
        """Open a package; see ``Executable.load``."""
        super().__init__(directory, temporary=temporary, manifest=manifest)
        if self.manifest.open_model is None:
            raise refuse("package-invalid", "no dim of this package is free", str(directory))
        self.cache = Cache() if cache is None else cache
        self.progress = progress
        self._loaded: OrderedDict[tuple[int, ...], Executable] = OrderedDict()
        self._plans: dict[tuple[int, ...], Executable] = {}
        self._last: Executable | None = None
        self._guard = RLock()
        _ = self.free  # Invalid bounds are refused now.

    def sizes(self, inputs: Mapping[str, Array] | Any) -> dict[str, int]:
        """The sizes of the free dims that inputs have; raises TilewrightError (``shape-``)."""
        dims = {info.name: info.shape for info in self.inputs}
        arrays = self.named(inputs)
        return sizes_of(dims, self.free, {n: np.asarray(a).shape for n, a in arrays.items()})

    def specialise_for(self, inputs: Mapping[str, Array] | Any) -> Executable:
        """The package for these inputs' shapes: found, or built now."""
        return self.specialise(self.sizes(inputs))

    def specialise(self, sizes: Mapping[str, int]) -> Executable:
        """The package for these sizes of its free dims: a plan of this one at the sizes, or one
        that is loaded, in the cache, or built now.

        Raises TilewrightError (``shape-bounds``, ``shape-open``, ``shape-unknown``), or with the
        reasons for which the model is refused at these sizes.
        """
        check_sizes(self.free, sizes)
        ordered = {name: sizes[name] for name in self.free}
        key = tuple(ordered.values())
        with self._guard:
            if key not in self._loaded:
                executable = self._planned(ordered) or self.cache.obtain(
                    self._key(ordered), lambda place: self._build(ordered, place), self._say
                )
                if specialisers:
                    executable.model = specialisers[-1][2](self.content, self.manifest, ordered)
                self._loaded[key] = executable
            self._loaded.move_to_end(key)
            self._last = self._loaded[key]
            self._unload()
            return self._last

    def _planned(self, sizes: Mapping[str, int]) -> Executable | None:
        """The smallest plan that holds the sizes, at these; None where there is none."""
        assert self.manifest.open_model is not None
        for most in self.manifest.open_model.plans:
            if 0 in sizes.values() or any(map(int.__gt__, sizes.values(), most)):
                continue
            if most not in self._plans:
                place = self.content / PLANS / plan_name(most)
                self._plans[most] = Executable(place, manifest=read_own(place))
            plan = self._plans[most]
            return PlannedExecutable(plan, self.manifest, sizes, lambda: self._interpreted(sizes))
        return None

    def _interpreted(self, sizes: Mapping[str, int]) -> tuple[ModuleOp, Weights]:
        _, interpreted, _ = self._compiler()
        return interpreted(self.content, self.manifest, sizes)

    def _compiler(self) -> tuple[Specialiser, Interpreted, Written]:
        if not specialisers:
            raise refuse(
                "package-invalid", "there is no compiler for a new shape", str(self.directory),
                "open the package with tilewright.Executable.load",
            )  # fmt: skip
        return specialisers[-1]

    def _build(self, sizes: Mapping[str, int], place: Path) -> None:
        listed = ", ".join(f"{name}={size}" for name, size in sizes.items())
        self._say(f"specialising for {listed}")
        specialiser, _, _ = self._compiler()
        specialiser(self.content, self.manifest, sizes, place, self.progress)
        # What a target builds once, such as the library of its C sources, is kept and sealed too.
        find_target(self.manifest.target).runner(place / PROGRAM).prepare()

    def _say(self, what: str) -> None:
        self.progress(what, 0, 0)

    def _unload(self) -> None:
        """Forget the specialisations used longest ago, beyond what one process keeps."""

        def size() -> int:
            return sum(
                executable.manifest.peak_memory_bytes for executable in self._loaded.values()
            )

        while len(self._loaded) > 1 and (
            len(self._loaded) > MOST_LOADED or size() > MOST_LOADED_BYTES
        ):
            self._loaded.popitem(last=False)

    def _key(self, sizes: Mapping[str, int]) -> str:
        """A digest of all that a specialisation depends on: equal keys, equal bytes."""
        manifest = self.manifest
        assert manifest.open_model is not None
        content = {
            "files": {name: entry.sha256 for name, entry in manifest.files.items()},
            "inputs": to_builtins(manifest.inputs),
            "open": to_builtins(replace(manifest.open_model, dims=())),
            "model": manifest.model,
            "target": manifest.target,
            "machine": manifest.machine,
            "host": find_target(manifest.target).options(),
            "compiler": compiler_digest(),
            "sizes": dict(sizes),
        }
        text = json.dumps(content, sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()

    @property
    def last(self) -> Executable:
        """The specialisation that was used last; refuses (``shape-open``) when there is none."""
        if self._last is None:
            names = ", ".join(self.free)
            raise refuse(
                "shape-open", f"the sizes of {names} are open", str(self.directory),
                "run it, or give sizes with specialise()",
            )  # fmt: skip
        return self._last

    def run(
        self,
        inputs: Mapping[str, Array] | Any,
        *,
        trace: str | Path | None = None,
        check_races: bool = False,
        observe: Observer | None = None,
        profile: bool = False,
    ) -> dict[str, Array]:
        """Run once, on the specialisation for the inputs' shapes; see ``Executable.run``.

        Raises TilewrightError for a size outside its bounds (``shape-bounds``), and for inputs
        that disagree on a dim (``shape-conflict``).
        """
        executable = self.specialise_for(inputs)
        return executable.run(
            inputs, trace=trace, check_races=check_races, observe=observe, profile=profile
        )

    def reference(
        self, inputs: Mapping[str, Array] | Any, observe: Observer | None = None
    ) -> dict[str, Array]:
        """Return the outputs of the graph interpreter for the same final graph and inputs."""
        return self.specialise_for(inputs).reference(inputs, observe)

    def check(self, inputs: Mapping[str, Array] | Any, outputs: Mapping[str, Array]) -> Check:
        """Compare outputs of ``run`` with the interpreter; see ``Executable.check``."""
        return self.specialise_for(inputs).check(inputs, outputs)

    def beside_model(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> ModelCheck:
        """Compare outputs with the model as it was written; see ``Executable.beside_model``."""
        return self.specialise_for(inputs).beside_model(inputs, outputs)

    @property
    def runner(self) -> Runner:
        """The runner of the specialisation that was used last."""
        return self.last.runner

    def _build_library(self) -> None:
        raise refuse(
            "shape-open", "a library is for one shape", str(self.directory),
            "save the result of specialise() for the sizes",
        )  # fmt: skip

    @property
    def profile(self) -> Profile:
        """Measurements of the last run; refuses when there was none."""
        return super().profile if self._last is None else self._last.profile

    @property
    def graph(self) -> ModuleOp:
        """The final graph of the specialisation that was used last."""
        return self.last.graph

    def _set_profile(self, profile: Profile, runs: int) -> None:
        self.last._set_profile(profile, runs)

    def report(self, *, kernels: bool = False) -> str:
        """The free dims, and the report of the specialisation that was used last."""
        last = "" if self._last is None else self._last.report(kernels=kernels)
        return free_dims(self.manifest) + last

    def summary(self) -> dict[str, Any]:
        """The free dims, and the summary of the specialisation that was used last."""
        free = {name: [bounds.low, bounds.high] for name, bounds in self.free.items()}
        return {"free": free, **({} if self._last is None else self._last.summary())}
