"""One model and its inputs on every engine, and whether they agree.

The graph interpreter, run on the model as it was imported, is compared with ONNX Runtime, which
reads the model itself, and with what each target's package gives. Floats may differ by a multiple
of the error to expect (graph/sensitivity.py); integers must be equal unless they hang on floats
that are about equal. Machines of other numbers than float32 are compared with the interpreter on
their own final graph, integers bit for bit.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from onnx import ModelProto

from tilewright.compiler.api import compile
from tilewright.errors import TilewrightError
from tilewright.frontends import Imported
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.graph.sensitivity import MARGIN, UNITS, epsilon, is_float, spread
from tilewright.ir.types import Array
from tilewright.numerics.element_types import ELEMENTS
from tilewright.runtime import Executable

RUNS = (3, 24)
"""Disturbed runs for a first look, and before a difference is believed."""

Arrays = Mapping[str, Array]

Run = Callable[[Executable, Arrays], Arrays]
"""A function that runs an executable on inputs by name and returns its outputs by name."""

Result = Literal["agrees", "differs", "refused", "failed"]


@dataclass(frozen=True)
class Verdict:
    """The result of one model on one engine, with its detail."""

    engine: str
    """``import``, ``onnxruntime``, or a target's name."""
    result: Result
    detail: str = ""

    @property
    def bad(self) -> bool:
        """True if the engine differs or failed; a refusal is not an error."""
        return self.result in ("differs", "failed")


@dataclass(frozen=True)
class Agreement:
    """The verdicts on all engines."""

    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """True if no engine differs or failed; engines may refuse the model."""
        return not any(verdict.bad for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return the verdicts as a JSON object."""
        return {"passed": self.passed, "engines": [asdict(v) for v in self.verdicts]}

    def __str__(self) -> str:
        width = max(len(verdict.engine) for verdict in self.verdicts)
        lines = [f"{v.engine.ljust(width)}  {v.result}  {v.detail}" for v in self.verdicts]
        return "".join(f"{line.rstrip()}\n" for line in lines)


def agreement(
    model: ModelProto,
    inputs: Arrays,
    targets: Sequence[str] = ("cpu", "cambricon-x"),
    *,
    run: Run = Executable.run,
) -> Agreement:
    """Run a model on all engines; never raises for what a model can do."""
    verdicts: list[Verdict] = []
    wanted: list[Wanted] = []

    def read() -> Verdict:
        imported = import_onnx(model)
        wanted.append(Wanted(imported, inputs))
        return Verdict("import", "agrees")

    verdicts.append(guarded("import", read))
    if not wanted:
        return Agreement(tuple(verdicts))
    verdicts.append(
        guarded(
            "onnxruntime",
            lambda: wanted[0].judge("onnxruntime", outputs_of(model, inputs)),
        )
    )
    verdicts += [
        guarded(name, lambda name=name: on_target(name, wanted[0], run)) for name in targets
    ]
    return Agreement(tuple(verdicts))


def guarded(engine: str, call: Callable[[], Verdict]) -> Verdict:
    """A verdict also for what raises."""
    try:
        return call()
    except TilewrightError as error:
        return Verdict(engine, "refused", "; ".join(map(str, error.problems)))
    except Exception as error:  # What a fuzzer looks for.
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('tilewright/')[2]}:{last.lineno}"
        words = " ".join(str(error).split())[:300]
        return Verdict(engine, "failed", f"{type(error).__name__}: {words} ({where})")


def outputs_of(model: ModelProto, inputs: Arrays) -> Arrays:
    """ONNX Runtime's outputs; raises TilewrightError if it refuses the model."""
    from tilewright.report.onnx_reference import onnx_tensors

    return onnx_tensors(model, inputs, [value.name for value in model.graph.output])


def on_target(name: str, wanted: Wanted, run: Run) -> Verdict:
    """Compile and run a model on a target, and compare its outputs."""
    # Ranges are those of the inputs: how well others stand for them is not the engine's part.
    samples = [wanted.inputs] if wanted.inputs else None
    executable = compile(wanted.imported, name, calibration=samples)
    outputs = run(executable, wanted.inputs)
    if ELEMENTS[executable.manifest.element].is_plain and not executable.runner.roundoff:
        return wanted.judge(name, outputs)
    check = executable.check(wanted.inputs, outputs)
    if check.passed:
        return Verdict(name, "agrees", "bit for bit" if check.exact else "")
    detail = f"{check.mismatches} mismatches, {check.max_abs_error:g} at most"
    return Verdict(name, "differs", detail)


class Wanted:
    """The interpreter's outputs for a model, and the error allowed of each."""

    def __init__(self, imported: Imported, inputs: Arrays) -> None:
        self.imported, self.inputs = imported, inputs
        with np.errstate(all="ignore"):
            self.outputs = interpret(imported.module, imported.weights, inputs)
        self._allowed: dict[int, Arrays] = {}

    def allowed(self, runs: int) -> Arrays:
        """The difference that each element may have."""
        if runs not in self._allowed:
            module, weights = self.imported.module, self.imported.weights
            units = UNITS if runs == RUNS[0] else 4 * UNITS
            expected = spread(module, weights, self.inputs, runs, units)
            self._allowed[runs] = {
                name: MARGIN * error + _last_places(self.outputs[name])
                for name, error in expected.items()
            }
        return self._allowed[runs]

    def judge(self, engine: str, outputs: Arrays) -> Verdict:
        """Compare an engine's outputs with the interpreter's and return the verdict."""
        for name, want in self.outputs.items():
            if name not in outputs:
                return Verdict(engine, "differs", f"there is no output {name!r}")
            got = np.asarray(outputs[name])
            if (got.dtype, got.shape) != (want.dtype, want.shape):
                kinds = f"{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
                return Verdict(engine, "differs", f"output {name!r} is {kinds}")
            beyond = differing(got, want, self.allowed(RUNS[0])[name])
            if beyond.any():
                beyond = differing(got, want, self.allowed(RUNS[1])[name])
            if beyond.any():
                return Verdict(engine, "differs", _described(name, got, want, beyond))
        return Verdict(engine, "agrees")


def _last_places(want: Array) -> Array:
    """A few units in the last place of each element."""
    if not is_float(want):
        return np.zeros(want.shape)
    return 2 * UNITS * epsilon(want) * np.abs(np.nan_to_num(want.astype(np.float64)))


def differing(got: Array, want: Array, allowed: Array) -> Array:
    """Return a mask of the elements at which two arrays differ by more than is allowed."""
    x, y = got.astype(np.float64), want.astype(np.float64)
    if got.dtype.kind in "iu" and got.dtype.itemsize == 8:
        equal = got == want
    else:
        equal = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        near = (np.abs(x - y) <= allowed) & (allowed > 0)
    return ~(equal | near | np.isinf(allowed))


def _described(name: str, got: Array, want: Array, beyond: Array) -> str:
    index = tuple(int(i[0]) for i in np.nonzero(beyond))
    count = int(beyond.sum())
    return (
        f"output {name!r} at {list(index)}: {got[index]} where the interpreter gives "
        f"{want[index]}; {count} of {want.size} elements"
    )
