"""A network as text at one of its levels: what ``tilewright compile --emit LEVEL`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.compiler.build import emit
from tilewright.compiler.pipeline import run_pipeline
from tilewright.errors import refuse
from tilewright.ir import ModuleOp, to_text
from tilewright.machine import Machine
from tilewright.runtime.manifest import PROGRAM
from tilewright.system.temporary import temporary_folder
from tilewright.targets.base import Target

if TYPE_CHECKING:
    from tilewright.compiler.state import CompilationState


def representation(
    model: str | Path,
    target: Target,
    machine: Machine,
    level: str,
    *,
    planner: str = "model",
    exact_convolution: bool = False,
    **options: Any,
) -> str:
    """The text of a model compiled for a target and its machine, at a level of ``Target.levels``.

    ``graph`` is the network of kernels after all graph passes, with layouts and places in memory;
    ``tile`` the tile program of each kernel that the target runs itself; ``program`` what it makes
    of them. The first two are read by ``tilewright opt``; of targets without words the third is
    C. ``options`` are those of ``run_pipeline``. Raises TilewrightError.
    """
    if level not in target.levels:
        raise refuse(
            "option-emit",
            f"target {target.name} has no representation {level!r}",
            "--emit",
            f"one of {', '.join(target.levels)}",
        )
    if exact_convolution:
        machine = machine.exact()
    with (
        temporary_folder() as folder,
        target.planner(planner, machine) as strategy,
    ):
        state = run_pipeline(model, target, machine, ask=strategy, **options)
        package = folder / "package"
        package.mkdir()
        # Only now is it known which kernels go to the host.
        emit(state, package)
        return _text(state, target, target.levels[level], package / PROGRAM)


def _text(state: CompilationState, target: Target, level: str, program: Path) -> str:
    if level == "graph":
        return to_text(state.network)
    if level == "program":
        return target.listing(program)
    programs = [program.clone() for kernel in state.kernels for program in kernel.programs]
    return to_text(ModuleOp(programs))
