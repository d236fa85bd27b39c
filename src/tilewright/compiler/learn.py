"""Learn from a target's simulator what the kernels of a machine cost."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.choices import LEARNED_SAMPLES
from tilewright.compiler.fuse import kernels_formed
from tilewright.compiler.state import Model
from tilewright.errors import refuse
from tilewright.graph.dialect import network_of
from tilewright.machine import Machine
from tilewright.network.fusion.learned.model import LearnedCost, fitted
from tilewright.network.fusion.learned.training import groups_of, samples_of
from tilewright.runtime.executable import Progress, quiet
from tilewright.targets.base import Target


def learn(
    models: Sequence[Model],
    target: Target,
    machine: Machine,
    *,
    samples: int = LEARNED_SAMPLES,
    progress: Progress = quiet,
) -> LearnedCost:
    """The cost of a machine's kernels, learned from simulated ones of some models.

    ``samples`` of their kernels, alone and fused as the machine's patterns say, are simulated.
    The same models give the same cost. Raises TilewrightError as ``compile`` does,
    ``option-target`` for targets without a simulator, and ``learned-samples``.
    """
    timer = target.simulator(machine)
    if timer is None:
        raise refuse(
            "option-target", f"target {target.name} has no simulator to learn from", "--target"
        )
    states = [kernels_formed(model, target, machine, progress=progress) for model in models]
    groups = groups_of([network_of(state.network) for state in states], machine)
    return fitted(list(samples_of(groups, machine, timer, samples, progress)), machine)
