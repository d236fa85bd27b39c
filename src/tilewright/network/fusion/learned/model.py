"""A learned cost: coefficients by which features give a kernel's cycles, and the file of them.

The logarithm of simulated cycles over a kernel's ``base`` is linear in its features, by ridge
regression: few samples decide many coefficients, and those that they do not decide stay small. No
prediction goes below a kernel's floor, and no feature counts for much more than the most that was
seen in training. (DNNVM, section 5.1, has a small neural network for this.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import exp
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.network.fusion.learned.features import features_of
from tilewright.planning import Plan
from tilewright.planning.domain import Kernel

FORMAT = 1
"""Version of the file, and of the meaning of the features in it; readers refuse any other."""

FEWEST = 8
"""Samples without which nothing is learned."""

RIDGE = 0.03
"""Weight of the squares of the coefficients, of standardised features, for each sample."""

BEYOND = 10.0
"""Of the range of a feature in training: further outside of it, a feature counts no more."""

DIGITS = 9
"""Significant digits of coefficients: sums in another order, on other processors, end alike."""

MOST_BYTES = 1 << 20
"""Of a file that is read."""

Name = Annotated[str, Field(min_length=1, max_length=100)]

Bounded = Annotated[FiniteFloat, Field(ge=-1e6, le=1e6)]
"""A coefficient: sums of these neither overflow nor cancel to no number."""


class Coefficient(BaseModel):
    """Of one feature: between which values it counts, and how much."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature: Name
    low: Bounded
    high: Bounded
    weight: Bounded


class LearnedCost(BaseModel):
    """What cycles of one machine's kernels were learned to be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    machine: str
    """Name of the machine."""
    digest: str
    """SHA-256 of the machine: costs of others were not learned."""
    samples: Annotated[int, Field(ge=1)]
    """Kernels that were simulated."""
    mean_deviation: FiniteFloat
    """Of the predicted from the simulated cycles of the samples, as a part of these."""
    greatest_deviation: FiniteFloat
    constant: Bounded
    coefficients: Annotated[tuple[Coefficient, ...], Field(max_length=1000)]

    def cycles(self, kernel: Kernel, plan: Plan, machine: Machine) -> float:
        """Predicted cycles of a kernel under a plan.

        Raises TilewrightError where the plan has no tile program.
        """
        return self.predicted(*features_of(kernel, plan, machine))

    def predicted(self, base: float, features: Mapping[str, float]) -> float:
        """Predicted cycles of a kernel of which these are ``features_of``."""
        total = self.constant
        for coefficient in self.coefficients:
            total += coefficient.weight * min(
                max(features.get(coefficient.feature, 0.0), coefficient.low), coefficient.high
            )
        return base * exp(min(max(total, features["floor"]), 10.0))

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


Sample = tuple[float, Mapping[str, float], float]
"""``features_of`` a kernel, and its simulated cycles."""


def fitted(samples: Sequence[Sample], machine: Machine) -> LearnedCost:
    """The cost that fits samples best; refuses (``learned-samples``) too few. The same samples give
    the same cost."""
    if len(samples) < FEWEST:
        raise refuse(
            "learned-samples", f"{len(samples)} kernels could be simulated; {FEWEST} are needed",
            machine.name, "more models, or larger ones",
        )  # fmt: skip
    names = sorted({name for _, features, _ in samples for name in features})
    table = np.array([[features.get(name, 0.0) for name in names] for _, features, _ in samples])
    wanted = np.log([cycles / base for base, _, cycles in samples])
    low, high, spread = table.min(axis=0), table.max(axis=0), table.std(axis=0)
    varied = np.flatnonzero(spread > 1e-6)
    centre = table[:, varied].mean(axis=0)
    scaled = (table[:, varied] - centre) / spread[varied]
    square = scaled.T @ scaled + RIDGE * len(samples) * np.eye(len(varied))
    weights = np.linalg.solve(square, scaled.T @ (wanted - wanted.mean())) / spread[varied]
    margin = BEYOND * (high - low)
    cost = LearnedCost(
        machine=machine.name,
        digest=digest_of(machine),
        samples=len(samples),
        mean_deviation=0.0,
        greatest_deviation=0.0,
        constant=_rounded(wanted.mean() - centre @ weights),
        coefficients=tuple(
            Coefficient(
                feature=names[n],
                low=_rounded(low[n] - margin[n]),
                high=_rounded(high[n] + margin[n]),
                weight=_rounded(weight),
            )
            for n, weight in zip(varied.tolist(), weights.tolist(), strict=True)
        ),
    )
    errors = [abs(cost.predicted(base, f) / cycles - 1) for base, f, cycles in samples]
    return cost.model_copy(
        update={
            "mean_deviation": float(f"{sum(errors) / len(errors):.3g}"),
            "greatest_deviation": float(f"{max(errors):.3g}"),
        }
    )


def _rounded(value: float) -> float:
    return float(f"{float(value):.{DIGITS}g}")
