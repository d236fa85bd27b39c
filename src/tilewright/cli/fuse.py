"""``tilewright fuse``: which kernels of a network are worth computing as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.system.choices import FUSION_COSTS, FUSION_SEARCHES
from tilewright.system.files import written

if TYPE_CHECKING:
    from tilewright.machine import Machine
    from tilewright.network.fusion.run import FusionReport, PricedCandidate


def complete_search(incomplete: str) -> list[str]:
    """Searches for tab completion, after those that are given already."""
    before, comma, last = incomplete.rpartition(",")
    searches = before.split(",")
    return [
        f"{before}{comma}{n}" for n in FUSION_SEARCHES if n.startswith(last) and n not in searches
    ]


complete_cost = console.completion(lambda: FUSION_COSTS)


@grouped
def fuse_command(
    model: Annotated[Path, typer.Argument(help=console.MODELS)],
    *,
    target: console.TargetOption = "cpu",
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="NAME,...",
            help=f"Of {', '.join(FUSION_SEARCHES)}; the first one's plan is printed.",
            autocompletion=complete_search,
        ),
    ] = ",".join(FUSION_SEARCHES),
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern",
            metavar="PATTERN",
            help="Search for this, too: 'conv -> pool' (repeatable).",
        ),
    ] = None,
    cost: Annotated[
        str,
        typer.Option(
            "--cost",
            metavar="SOURCE",
            help="closed: cycles that planning predicts; simulated: those of the simulator.",
            autocompletion=complete_cost,
        ),
    ] = FUSION_COSTS[0],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the first search's plan here."),
    ] = None,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Search for kernels that are worth computing as one: candidates, costs and plans.

    Example: tilewright fuse mobilenet.onnx --target cpu

    Example: tilewright fuse resnet18.onnx -t cambricon-x --pattern "conv -> max_pool" --json
    """
    from tilewright.compiler.fuse import fuse
    from tilewright.compiler.pipeline import resolve

    with console.refusals(as_json), console.progress(quiet) as progress:
        chosen, machine = resolve(target, None, options.values)
        report = fuse(
            options.source(model),
            chosen,
            machine,
            **options.given,
            searches=tuple(dict.fromkeys(search.split(","))),
            patterns=pattern or (),
            cost=cost,
            progress=progress,
        )
        if output is not None and report.plans:
            with written(output) as fresh:
                fresh.write_text(str(next(iter(report.plans.values()))), encoding="utf-8")
    if as_json:
        facts = {"target": chosen.name, "machine": machine.name, "cost": cost}
        console.print_json(facts | report.to_json())
        return
    _say(report, machine, bool(pattern))


MOST_NAMED = 27
"""Columns for the kernels of a candidate, beside its figures."""


def _say(report: FusionReport, machine: Machine, patterns: bool) -> None:
    if not machine.fusions and not patterns:
        console.say(f"{machine.name} has no patterns of fusion: nothing to search (give --pattern)")
        return
    chosen = {
        group.kernels: name
        for name, plan in reversed(report.plans.items())
        for group in plan.groups
    }
    first = next(iter(report.plans), "")
    fused = [candidate for candidate in report.candidates if candidate.problem is None]
    console.say(
        f"{report.kernels} kernels, {len(report.candidates)} candidates, of which "
        f"{len(fused)} cost less as one kernel"
    )
    if fused:
        wide = min(max(len(_short(candidate)) for candidate in fused), MOST_NAMED)
        console.say(f"\n  {'fused':<{wide}}{'pattern':>15}{'apart':>14}{'as one':>14}{'gain':>8}")
        for candidate in fused:
            assert candidate.apart is not None and candidate.fused is not None
            mark = "*" if chosen.get(candidate.kernels) == first else " "
            mark += "=" if candidate.kept else " "
            name = _short(candidate)
            if len(name) > wide:  # a line of its own
                console.say(f"{mark}{name}")
                mark, name = "  ", ""
            console.say(
                f"{mark}{name:<{wide}}{candidate.fusion:>15}{candidate.apart:>14,.0f}"
                f"{candidate.fused:>14,.0f}{1 - candidate.fused / candidate.apart:>8.1%}"
            )
        console.say(f"* in the plan of {first}")
        if any(candidate.kept for candidate in fused):
            console.say("= rows that two tiles read stay on the chip")
    for fusion, reason, candidates in _refused(report):
        names = ", ".join(_short(candidate) for candidate in candidates[:3])
        more = f" and {len(candidates) - 3} more" if len(candidates) > 3 else ""
        console.say(f"\nnot fused by {fusion}: {names}{more}\n  {reason}")
    console.say(f"\n{'search':<12}{'cycles':>14}{'groups':>8}{'gain':>8}")
    console.say(f"{'apart':<12}{report.apart:>14,.0f}{0:>8}")
    for name, plan in report.plans.items():
        gain = 1 - plan.cycles / report.apart if report.apart else 0.0
        console.say(f"{name:<12}{plan.cycles:>14,.0f}{len(plan.groups):>8}{max(gain, 0.0):>8.1%}")
    if first:
        plan = report.plans[first]
        lines = [line for line in str(plan).splitlines() if not line.startswith("alone: ")]
        groups, stays = lines[: 1 + len(plan.groups)], lines[1 + len(plan.groups) :]
        console.say("\n" + "\n".join([*groups, f"alone: {len(plan.alone)} kernels", *stays]))
        if plan.stays:
            gain = sum(tensor.gain for tensor in plan.stays)
            console.say(f"what stays gains {gain:,.0f} simulated cycles")


def _short(candidate: PricedCandidate) -> str:
    return " + ".join(candidate.kernels)


def _refused(report: FusionReport) -> list[tuple[str, str, list[PricedCandidate]]]:
    """Candidates that are no choice, those of one fusion and one reason together."""
    reasons: dict[tuple[str, str], list[PricedCandidate]] = {}
    for candidate in report.candidates:
        if candidate.problem is not None:
            help = f" ({candidate.problem.help})" if candidate.problem.help else ""
            reason = f"[{candidate.problem.code}] {candidate.problem.reason}{help}"
            reasons.setdefault((candidate.fusion, reason), []).append(candidate)
    return [(fusion, reason, candidates) for (fusion, reason), candidates in reasons.items()]
