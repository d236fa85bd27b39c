"""A learned cost: how instructions differ from what a tile program says of them, and its file.

What an instruction takes is linear in what is known of it: ``times`` its cycles or bytes, and so
many ``more``; of loads of windows, which share of them is brought window by window (``apart``); and
``ready``, in which order a chain's instructions are dispatched. All else follows from the pipeline
(pipeline.py). What the samples do not decide stays as the machine's description has it. (DNNVM,
section 5.1, has a small neural network for this.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.network.fusion.learned.fitting import Fit, Sample
from tilewright.network.fusion.learned.pipeline import instructions_of
from tilewright.planning import Plan
from tilewright.planning.domain import Kernel

FORMAT = 2
"""Version of the file, and of the meaning of the values in it; readers refuse any other."""

FEWEST = 8
"""Samples without which nothing is learned."""

DIGITS = 4
"""Significant digits of values: sums in another order, on other processors, end alike."""

MOST_BYTES = 1 << 20
"""Of a file that is read."""

Name = Annotated[str, Field(min_length=1, max_length=100)]

Bounded = Annotated[FiniteFloat, Field(ge=-1e6, le=1e6)]
"""A value: instructions are neither endless nor too long for the timing core."""


class LearnedCost(BaseModel):
    """What cycles of one machine's kernels were learned to be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[2] = FORMAT
    machine: str
    """Name of the machine."""
    digest: str
    """SHA-256 of the machine: costs of others were not learned."""
    samples: Annotated[int, Field(ge=1)]
    """Kernels that were simulated."""
    mean_deviation: FiniteFloat
    """Of the predicted from the simulated cycles of the samples, as a part of these."""
    greatest_deviation: FiniteFloat
    ready: bool
    """Whether a chain's instructions are dispatched as they could begin."""
    values: Annotated[dict[Name, Bounded], Field(max_length=1000)]
    """``Instructions.table`` has their names; of what has none, the machine's description holds."""

    def cycles(self, kernel: Kernel, plan: Plan, machine: Machine) -> float:
        """Predicted cycles of a kernel under a plan.

        Raises TilewrightError where the plan has no tile program.
        """
        return instructions_of(kernel, plan, machine).cycles(self.values, ready=self.ready)

    def check(self, machine: Machine, source: str) -> None:
        """Refuse (``learned-machine``) another machine than what this was learned of."""
        if self.digest != digest_of(machine):
            alike = machine.name == self.machine
            raise refuse(
                "learned-machine",
                f"it was learned of {self.machine}"
                + (", of which values have changed since" if alike else f", not {machine.name}"),
                source,
                f"tilewright learn MODELS --target {machine.name}, with its --set",
            )

    def text(self) -> str:
        """What ``read`` reads."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def read(path: Path) -> LearnedCost:
    """A learned cost from its file; refuses (``learned-file``) anything else."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        return LearnedCost.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
    except (OSError, ValueError) as error:
        reason = str(error)
    raise refuse(
        "learned-file",
        f"is no learned cost: {reason[:200]}",
        str(path),
        "tilewright learn makes one",
    )


def digest_of(machine: Machine) -> str:
    """SHA-256 of all that a machine is."""
    text = json.dumps(machine.model_dump(mode="json"), sort_keys=True)
    return sha256(text.encode()).hexdigest()


def fitted(samples: Sequence[Sample], machine: Machine) -> LearnedCost:
    """The cost that fits samples best; refuses (``learned-samples``) too few. The same samples give
    the same cost."""
    if len(samples) < FEWEST:
        raise refuse(
            "learned-samples", f"{len(samples)} kernels could be simulated; {FEWEST} are needed",
            machine.name, "more models, or larger ones",
        )  # fmt: skip
    chains = any(instructions.computes > 1 for instructions, _ in samples)
    fits = [Fit(samples, ready) for ready in ((False, True) if chains else (False,))]
    results = [fit.best() for fit in fits]
    number = min(range(len(fits)), key=lambda number: results[number][0])
    fit, (_, point) = fits[number], results[number]
    values = {name: float(f"{value:.{DIGITS}g}") for name, value in fit.values(point).items()}
    predicted = [(kernel.cycles(values, ready=fit.ready), cycles) for kernel, cycles in samples]
    errors = [abs(ours / cycles - 1) for ours, cycles in predicted]
    return LearnedCost(
        machine=machine.name,
        digest=digest_of(machine),
        samples=len(samples),
        mean_deviation=float(f"{sum(errors) / len(errors):.3g}"),
        greatest_deviation=float(f"{max(errors):.3g}"),
        ready=fit.ready,
        values=values,
    )
