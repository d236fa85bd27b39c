"""A compiled network that runs, checks itself against the interpreter, and reports.

A server loads a package and runs it, in less time than most of Tilewright takes to import: what
only some methods need, they import. A package that is only reported on, or copied, needs neither
NumPy nor the graph.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.codegen.c.packaged import LIBRARIES, Packaged
from tilewright.errors import TilewrightError, refuse
from tilewright.numerics.element_types import ELEMENTS
from tilewright.runtime.listed import listed_only
from tilewright.runtime.manifest import (
    MANIFEST,
    PROGRAM,
    REFERENCE,
    Manifest,
    read_manifest,
    read_own,
)
from tilewright.runtime.output_sizes import cut_to_sizes, returned
from tilewright.runtime.ports import refuse_other_ports
from tilewright.system.temporary import make_folder, remove_folder

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import Profile, Runner, TensorInfo
    from tilewright.graph.interpreter import Observer
    from tilewright.graph.weights import Weights
    from tilewright.ir import ModuleOp
    from tilewright.ir.types import Array
    from tilewright.runtime.cache import Cache
    from tilewright.runtime.check import Check
    from tilewright.runtime.model_check import ModelCheck, ModelSource
    from tilewright.shapes.forms import Bounds

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

MOST_RUNS = 9
"""Runs after the first whose median is reported."""

AGAIN = 0.25
"""Seconds of these runs, after which no other begins."""

LONG = 5.0
"""Seconds of a first run from which on it is reported; a shorter one may load what others find."""


def quiet(what: str, done: int, total: int) -> None:
    """Show no progress at all."""
    del what, done, total


class Executable:
    """A package ready to run; made by ``tilewright.compile`` or ``Executable.load``."""

    def __init__(
        self,
        directory: Path,
        *,
        temporary: bool = False,
        manifest: Manifest | None = None,
        trust: bool = False,
    ) -> None:
        """Open a package; a ``temporary`` one is removed together with this object.

        ``manifest`` is what ``read_manifest`` has just given for it, if it has been read. ``trust``
        lets libraries of the package be loaded that the user's own key has not sealed.
        """
        self.directory = directory
        self.manifest: Manifest = read_manifest(directory) if manifest is None else manifest
        self._model_sizes = self.manifest.output_sizes
        if temporary:
            weakref.finalize(self, remove_folder, directory)
        self._runner: Runner | None = None
        self._profile: Profile | None = None
        self._runs = 0
        self._last_inputs: Mapping[str, Array] | None = None
        self._took, self._timed = 0.0, False
        self._measured: Callable[[], Profile] | None = None
        self._reference: tuple[ModuleOp, Weights] | None = None
        self.model: ModelSource | None = None
        """Function that returns the model as written, for ``check``; None where the model is
        missing."""
        self._libraries = Packaged(
            directory / LIBRARIES,
            frozenset(
                name.removeprefix(f"{LIBRARIES}/")
                for name in self.manifest.files
                if name.startswith(f"{LIBRARIES}/")
            ),
            trust,
        )

    @staticmethod
    def load(
        directory: str | Path,
        *,
        cache: Cache | None = None,
        progress: Progress = quiet,
        trust: bool = False,
    ) -> Executable:
        """Open a package on disk; raises TilewrightError if it is damaged or none.

        For a package with free dims the result is a ``DynamicExecutable``, which keeps what it
        builds in ``cache`` and tells ``progress`` what it is doing. ``trust`` says that the package
        comes from where you think: its libraries are loaded, also those that your own key has not
        sealed (docs/package-safety.md).
        """
        return opened(Path(directory), cache=cache, progress=progress, trust=trust)

    def save(self, directory: str | Path, *, build: bool | None = None) -> Path:
        """Copy what the package lists to a new or empty place; an older package there is replaced.

        The library of its C for the processor at hand is put beside the C, sealed with the user's
        key, so that a run needs no compiler (docs/package-safety.md): where it can be built, or
        always with ``build=True``, which raises TilewrightError if it cannot; ``build=False``
        leaves it out.

        A name that ends with .elf becomes one file (runtime/elf_package.py), without libraries.

        Nothing half-written is left: the copy is made beside and then renamed.
        """
        import shutil

        from tilewright.codegen.c.compiler import has_compiler
        from tilewright.runtime.elf import becomes_elf
        from tilewright.runtime.replacing import replacing

        target = Path(directory)
        if becomes_elf(target):
            from tilewright.runtime.elf_package import write_elf  # It needs the targets.

            if build:
                raise refuse("option-form", "a package of one file holds no library", str(target))
            write_elf(self.directory, target)
            return target
        if build or (build is None and has_compiler()):
            try:
                self._build_library()
            except TilewrightError:
                if build:
                    raise
            if build and not (self._libraries.built or self._libraries.listed):
                reason = f"no part of it is C that runs here: {self.manifest.target} has no library"
                raise refuse("option-form", reason, str(target), "leave --build out")
        with replacing(target) as fresh:
            for name in (MANIFEST, *self.manifest.files):
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.directory / name, fresh / name)
            if build is not False and self._libraries.built:
                names = self._libraries.write(fresh / LIBRARIES)
                read_own(fresh).add(fresh, [f"{LIBRARIES}/{name}" for name in names])
        return target

    def _build_library(self) -> None:
        """Build the library for the processor at hand, if it is not there."""
        if not self.manifest.runs:
            raise refuse("option-form", "only other tools run this package", str(self.directory))
        with self._libraries.at_hand():
            self.runner.build()

    def specialise(self, sizes: Mapping[str, int]) -> Executable:
        """The package for these sizes of its free dims: itself, where none are free."""
        from tilewright.shapes.run import check_sizes

        check_sizes({}, sizes)
        return self

    def specialise_for(self, inputs: Mapping[str, Array] | Any) -> Executable:
        """The package for these inputs' shapes: itself, where no dims are free."""
        del inputs
        return self

    @property
    def free(self) -> Mapping[str, Bounds]:
        """The free dims and their bounds, in the order in which the inputs name them."""
        open_model = self.manifest.open_model
        return {} if open_model is None else {dim.name: dim.bounds for dim in open_model.dims}

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Name, shape and dtype of every input; free dims are named."""
        from tilewright.codegen.program.interface import TensorInfo

        return tuple(TensorInfo(t.name, t.shape, t.dtype) for t in self.manifest.inputs)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Name, shape and dtype of every output; a size that a run computes is the most there."""
        from tilewright.codegen.program.interface import TensorInfo

        sizes = {end.size for end in self.manifest.output_sizes}
        stated = (tensor for tensor in self.manifest.outputs if tensor.name not in sizes)
        return tuple(TensorInfo(t.name, t.shape, t.dtype) for t in stated)

    @cached_property
    def content(self) -> Path:
        """The package's directory, or where its listed files stand alone: all that is ever read."""
        return listed_only(self.directory, self.manifest, self)

    @property
    def runner(self) -> Runner:
        """The target's runner, made when first asked for."""
        if self._runner is None:
            from tilewright.codegen.program.interface import PlannedKernel
            from tilewright.targets.base import find_target

            with self._libraries.at_hand():
                runner = find_target(self.manifest.target).runner(self.content / PROGRAM)
                refuse_other_ports(self.manifest, runner, self.directory)
                if self._libraries.files:
                    runner.build()
            runner.planned = {
                entry.name: PlannedKernel(entry.buffers, entry.peak_cycles)
                for entry in self.manifest.kernels
            }
            self._runner = runner
        return self._runner

    def named(self, inputs: Mapping[str, Array] | Any) -> Mapping[str, Array]:
        """Arrays by input name, lists as their elements; one array alone is that of the only input.

        Refuses (``input-name``) one array where there are several inputs, or none, and
        (``input-list``) a list of another length, or what is no list.
        """
        if isinstance(inputs, Mapping):
            return self.manifest.lists.given(inputs)
        names = [tensor.name for tensor in self.manifest.inputs]
        if len(names) != 1:
            raise refuse(
                "input-name", f"one array is given, the model has {len(names)} inputs",
                help=f"give a dict of arrays by name: {', '.join(names) or 'it is empty'}",
            )  # fmt: skip
        import numpy as np

        return {names[0]: np.asarray(inputs)}

    def run(
        self,
        inputs: Mapping[str, Array] | Any,
        *,
        trace: str | Path | None = None,
        check_races: bool = False,
        observe: Observer | None = None,
        profile: bool = False,
    ) -> dict[str, Array]:
        """Run once on arrays by input name, or on the array of the only input.

        Returns arrays by output name. Sequences are lists of arrays, and optionals that hold
        nothing None.

        Afterwards ``profile`` holds the run's measurements. ``trace`` writes a timeline for
        Perfetto. ``observe`` is shown the name and the logical array of every value between
        kernels, in program order, named as in the final graph. ``profile`` times the kernels
        of this very run (on ``cpu`` a small network then takes longer); without it, the property
        runs them once more when it is asked for. ``check_races`` makes simulated machines look for
        missing waits, and for results that depend on bytes never written: it runs once more,
        on memories that begin with other contents. Raises TilewrightError for other inputs.
        """
        runner = self._runner or self.runner
        if type(inputs) is not dict or self.manifest.lists.inputs:
            inputs = self.named(inputs)
        watch = None
        if observe is not None:
            from tilewright.graph.dialect import network_of
            from tilewright.runtime.observing import Observing

            watch = Observing(network_of(self.graph), observe).step
        begin = time.perf_counter()
        if trace is None:
            result = runner.run(inputs, check_races=check_races, watch=watch, profile=profile)
        else:
            from tilewright.system.files import written

            with written(Path(trace)) as fresh:
                result = runner.run(inputs, trace=fresh, check_races=check_races, watch=watch)
        self._profile, self._measured, self._runs = None, result.measured, 0
        self._last_inputs, self._took = inputs, time.perf_counter() - begin
        self._timed = profile or trace is not None or watch is not None
        if check_races and runner.spoils:
            from tilewright.runtime.unwritten import refuse_unwritten

            counted = profile or trace is not None
            refuse_unwritten(runner, lambda: self.graph, inputs, result.outputs, profile=counted)
        return returned(self.manifest, result.outputs)

    @property
    def profile(self) -> Profile:
        """Measurements of the last run; refuses when there was none.

        On ``cpu`` a run reads no clocks unless it is told to: the profile is that of another run
        on the same arrays, made now.
        """
        measured = self._last_profile()
        if measured is None:
            raise refuse("profile-missing", "nothing has run yet", help="call run() first")
        return measured

    @property
    def has_run(self) -> bool:
        """True if ``profile`` tells of a run."""
        return self._profile is not None or self._measured is not None

    def _last_profile(self) -> Profile | None:
        if self._profile is None and self._measured is not None:
            self._profile, self._measured = self._measured(), None
            if not self._timed and self._profile.cycles is None:
                self._runs = 1  # A native run that reads no clocks was made again.
        return self._profile

    @property
    def graph(self) -> ModuleOp:
        """The final graph that the program was made from, with placements."""
        return self._read_reference()[0]

    @property
    def weights(self) -> Weights:
        """The constants of that graph."""
        return self._read_reference()[1]

    def _read_reference(self) -> tuple[ModuleOp, Weights]:
        if self._reference is None:
            from tilewright.runtime.reference import packed_weights, read_reference
            from tilewright.targets.base import find_target

            packed = packed_weights(find_target(self.manifest.target), self.content / PROGRAM)
            self._reference = read_reference(self.content / REFERENCE, packed)
        return self._reference

    def reference(
        self, inputs: Mapping[str, Array] | Any, observe: Observer | None = None
    ) -> dict[str, Array]:
        """Return the outputs of the graph interpreter for the same final graph and inputs."""
        from tilewright.graph.interpreter import interpret

        module, weights = self._read_reference()
        taken = dict(self._taken(self.named(inputs)))
        outputs = returned(self.manifest, interpret(module, weights, taken, observe))
        empty = {tensor.name for tensor in self.manifest.empty_outputs}
        return {name: value for name, value in outputs.items() if name not in empty}

    def _taken(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The arrays that the final graph takes in a run on ``inputs``."""
        return inputs

    def check(self, inputs: Mapping[str, Array] | Any, outputs: Mapping[str, Array]) -> Check:
        """Compare outputs of ``run`` with the interpreter: exactly on integer machines.

        Where the host computes in float32 on the way (``Runner.exact``), within the tolerance, or
        within the error to expect where the network magnifies roundings (graph/sensitivity.py);
        where the machine's numbers are coarser than float32, within what their roundings give.

        Then with the model as it was written, where that is at hand: how far they are from what it
        gives in its own types, within the bound of the number format (docs/number-formats.md).
        """
        import numpy as np

        from tilewright.graph.interpreter import interpret
        from tilewright.graph.overflow import OverflowObserver
        from tilewright.runtime.check import compared

        inputs, outputs = self.named(inputs), self.manifest.lists.told(outputs)
        module, weights = self._read_reference()
        taken, observer = dict(self._taken(inputs)), OverflowObserver(module, weights)
        exact = ELEMENTS[self.manifest.element].is_integer and self.runner.exact
        with np.errstate(all="ignore"):  # What overflows is told.
            expected = interpret(module, weights, taken, observer)
        check = compared(
            module, weights, taken, outputs, exact=exact, roundoff=self.runner.roundoff,
            expected=cut_to_sizes(self.manifest.output_sizes, expected),
        )  # fmt: skip
        losses = {"overflows": observer.overflows(), "underflows": observer.underflows()}
        beside = self.beside_model(inputs, outputs)
        return replace(
            check,
            **{name: tuple(rows) for name, rows in losses.items()},
            model=beside,
            passed=check.passed and beside.passed,
        )

    def beside_model(
        self, inputs: Mapping[str, Array] | Any, outputs: Mapping[str, Array]
    ) -> ModelCheck:
        """Compare outputs of ``run`` with the model as it was written, in its own types."""
        from tilewright.runtime.model_check import beside_model

        inputs = self.named(inputs)
        module, weights = self._read_reference()
        empty = {tensor.name for tensor in self.manifest.empty_outputs}
        outputs = self.manifest.lists.told(outputs)
        outputs = {name: array for name, array in outputs.items() if name not in empty}
        return beside_model(
            self.model, inputs, outputs, final=module, weights=weights,
            cut=partial(cut_to_sizes, self._model_sizes),
        )  # fmt: skip

    def measure(self, inputs: Mapping[str, Array], runs: int, seconds: float) -> list[float]:
        """Run again, after a first run, and let ``profile`` be that of the median run.

        Stops after ``runs`` runs, or sooner when a run has ended and ``seconds`` have passed; at
        least one is made where ``seconds`` is positive. Returns what each run took, in seconds: on
        the host alone where the accelerator's cycles are simulated.
        """
        profiles: list[Profile] = []
        begin = time.perf_counter()
        while len(profiles) < runs and (time.perf_counter() - begin < seconds):
            self.run(inputs, profile=True)
            profiles.append(self.profile)
        profiles.sort(key=_native_seconds)
        if profiles:  # The lower one of two in the middle: a profile is one run's.
            self._set_profile(profiles[(len(profiles) - 1) // 2], len(profiles))
        return [_native_seconds(profile) for profile in profiles]

    def _set_profile(self, profile: Profile, runs: int) -> None:
        self._profile, self._runs = profile, runs

    def _settle(self) -> None:
        """Let a few runs after the first tell the time, where that takes no time itself."""
        if self._runs == 0 and self._last_inputs is not None and self._took < LONG:
            self.measure(self._last_inputs, MOST_RUNS, AGAIN)

    def report(self, *, kernels: bool = False) -> str:
        """Return the package's contents and, after a run, its times as text (docs/reports.md).

        The first run, which also loads what all others find, does not count: a few more are made
        now, and the report is of the median one. With ``kernels`` all are listed, slowest first.
        """
        from tilewright.runtime.glance import report

        return report(self.manifest, self.summary(), kernels=kernels)

    def _repr_html_(self) -> str:
        from tilewright.runtime.notebook import summary_table

        return summary_table(self)

    def summary(self) -> dict[str, Any]:
        """Totals of the plan and of a run, as ``tilewright run --json`` prints them; ``report``
        says which."""
        from tilewright.runtime.summary import summary

        self._settle()
        return summary(self.manifest, self._last_profile(), self._runs)


def _native_seconds(profile: Profile) -> float:
    """Return the seconds of a run that were measured on this processor."""
    return (profile.seconds if profile.cycles is None else profile.host_seconds) or 0.0


def opened(
    directory: Path,
    *,
    temporary: bool = False,
    cache: Cache | None = None,
    progress: Progress = quiet,
    written_here: bool = False,
    trust: bool = False,
) -> Executable:
    """Open a package, with free dims or without; see ``Executable.load``.

    ``written_here`` says that this process has just written it.
    """
    if directory.is_file():
        from tilewright.runtime.elf_package import read_elf

        folder = make_folder()
        try:
            read_elf(directory, folder)
            return opened(folder, temporary=True, cache=cache, progress=progress, trust=trust)
        except BaseException:
            remove_folder(folder)
            raise
    manifest = read_own(directory) if written_here else read_manifest(directory)
    if manifest.open_model is None:
        return Executable(directory, temporary=temporary, manifest=manifest, trust=trust)
    from tilewright.runtime.dynamic import DynamicExecutable  # It builds on this module.

    return DynamicExecutable(
        directory, temporary=temporary, manifest=manifest, cache=cache, progress=progress
    )


def placed(executable: Executable, directory: str | Path | None) -> Executable:
    """A package that has been found whole: its copy in ``directory``, or itself without one."""
    if directory is None:
        return executable
    place = executable.save(directory, build=False)
    return opened(place) if place.is_file() else Executable(place, manifest=executable.manifest)
