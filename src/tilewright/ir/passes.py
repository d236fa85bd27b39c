"""The context that passes share, and the runner that verifies what they leave."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.ir import (
    Context,
    DiagnosticException,
    ModuleOp,
    ModulePass,
    Operation,
    VerifyException,
    to_text,
)
from tilewright.machine import Machine


class WeightStore(Protocol):
    """The constants of a network, by content-addressed symbol."""

    def get(self, symbol: str) -> NDArray[Any]:
        """The array of a symbol; raises KeyError."""
        ...

    def add(self, array: NDArray[Any], hint: str = "") -> str:
        """Keep an array; returns its symbol, the same for the same content."""
        ...


class CompilerContext(Context):
    """xDSL's context, with what passes ask for."""

    def __init__(
        self,
        machine: Machine | None = None,
        weights: WeightStore | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        factors: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        super().__init__()
        self._machine = machine
        self._weights = weights
        self.ranges = dict(ranges or {})
        """Calibrated (minimum, maximum) of values, for fix-numbers."""
        self.factors = dict(factors or {})
        """Divisors of each channel of values, for equalise."""
        self.inserted: dict[str, Hashable] = {}
        """The form of every kernel that passes inserted once kernels were formed, by its symbol
        (graph/passes/insertion.py)."""
        self.refused: dict[Hashable, str] = {}
        """Reasons why the host runs kernels that passes insert, by their forms."""
        self.apart: Collection[str] = ()
        """The symbols of kernels that keep the method that they have by themselves."""
        self.planner: object = None
        """Planner of kernels on this machine (``planning.planner_in``); None for its cost model."""

    @property
    def machine(self) -> Machine:
        """The machine compiled for; refuses when there is none."""
        if self._machine is None:
            raise refuse("pass-machine", "this pass needs a machine", help="name a --target")
        return self._machine

    @property
    def described(self) -> Machine | None:
        """The machine; None where passes run without one."""
        return self._machine

    @property
    def weights(self) -> WeightStore:
        """The network's weights; refuses when there are none."""
        if self._weights is None:
            raise refuse("pass-weights", "this pass needs the network's weights")
        return self._weights


@dataclass(frozen=True)
class PassEntry:
    """One step of a pipeline: a pass, and why it stands where it stands."""

    step: ModulePass
    reason: str


@dataclass(frozen=True)
class PassRecord:
    """The record of one pass that ran."""

    name: str
    seconds: float
    changed: bool


def spelling(step: ModulePass) -> str:
    """A pass with its options as the command line spells it."""
    return str(step.spec())


def made_of(operation: Operation) -> list[object]:
    """All that verification looks at: operations in order, values, types and attributes.

    None of these parts changes, so that equal lists are of one module in one state.
    """
    parts: list[object] = [operation]
    _add_parts(operation, parts)
    return parts


def _add_parts(operation: Operation, parts: list[object]) -> None:
    parts += operation.operands
    parts += [result.type for result in operation.results]
    for attributes in (operation.properties, operation.attributes):
        parts += attributes
        parts += attributes.values()
    for region in operation.regions:
        parts.append(region)
        for block in region.blocks:
            parts.append(block)
            parts += block.args
            parts += [argument.type for argument in block.args]
            for child in block.ops:
                parts.append(child)
                _add_parts(child, parts)


@dataclass
class PassRunner:
    """Runs pipelines; verifies, times and dumps after each pass.

    With ``dump``, every pipeline leaves its input and each pass ``NNN-pass-name.mlir`` there,
    numbered through all pipelines that this runner runs; the first line of a file tells its pass,
    and whether that changed nothing.
    """

    context: CompilerContext
    dump: Path | None = None
    verify: bool = True
    records: list[PassRecord] = field(default_factory=list[PassRecord])
    _number: int = 0
    _sound: list[object] = field(default_factory=list[object])
    """The parts of the module when it was last verified (``made_of``)."""

    def write(self, module: ModuleOp, title: str, remark: str = "") -> Path | None:
        """Dump the module as the next numbered file, if dumps are wanted."""
        if self.dump is None:
            return None
        self.dump.mkdir(parents=True, exist_ok=True)
        path = self.dump / f"{self._number:03d}-{title}.mlir"
        self._number += 1
        path.write_text((f"// {remark}\n" if remark else "") + f"{to_text(module)}\n")
        return path

    def trust(self, module: ModuleOp) -> None:
        """Take a module for verified: a copy of one that an importer has just verified."""
        self._sound = made_of(module)

    def _verify(self, module: ModuleOp) -> None:
        """Verify the module, unless it is what it was when that was last done.

        Most passes change nothing in a network, and to see that takes a fifth of the time.
        """
        parts = made_of(module)
        if parts != self._sound:
            module.verify()
            self._sound = parts

    def run(
        self,
        module: ModuleOp,
        pipeline: Iterable[PassEntry],
        title: str = "",
        *,
        verify_each: bool = True,
    ) -> None:
        """Run the passes on the module in place.

        Without ``verify_each`` the module is verified once, after the last pass, unless dumps are
        wanted: to verify takes as long as what passes over a small module do. ``title`` is put
        before the pass's name in file names. An error inside a pass is raised as ``pass-failed``
        with the command that repeats it; refusals pass through as they are.
        """
        each = verify_each or self.dump is not None
        before = to_text(module) if self.dump is not None else ""
        previous = self.write(module, f"{title}input")
        for entry in pipeline:
            start = time.perf_counter()
            try:
                entry.step.apply(self.context, module)
                if self.verify and each:
                    self._verify(module)
            except TilewrightError:
                raise
            except (VerifyException, DiagnosticException) as error:
                again = f"tilewright opt {previous or 'FILE'} -p '{spelling(entry.step)}'"
                raise refuse(
                    "pass-failed", str(error), entry.step.name, f"repeat: {again}"
                ) from error
            seconds = time.perf_counter() - start
            changed = True
            if self.dump is not None:
                after = to_text(module)
                changed, before = after != before, after
                remark = spelling(entry.step) + ("" if changed else " (unchanged)")
                previous = self.write(module, f"{title}{entry.step.name}", remark)
            self.records.append(PassRecord(entry.step.name, seconds, changed))
        if self.verify and not each:
            try:
                module.verify()
            except (VerifyException, DiagnosticException) as error:
                raise refuse(
                    "pass-failed",
                    str(error),
                    title.strip("-"),
                    "repeat with --dump FOLDER, which verifies after each pass",
                ) from error
