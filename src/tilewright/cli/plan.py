"""``tilewright plan``: each kernel's schedule and what it should cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import console
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.numbers import NumberOptions

if TYPE_CHECKING:
    from tilewright.network.limits import NetworkLimits
    from tilewright.planning import Plan

MANY = 0.25
"""Part of a kernel's cycles from which on the latencies of an operand's blocks are worth a line."""


@grouped
def plan_command(
    model: Annotated[Path, typer.Argument(help=console.MODELS)],
    *,
    target: console.TargetOption = "cpu",
    formats: NumberOptions,
    options: ModelOptions,
    planner: console.PlannerOption = "model",
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="NAME",
            help="A second planner, to compare cycles and steps.",
        ),
    ] = None,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Print the schedule of every kernel, its predicted cost and its bounds.

    Example: tilewright plan vgg16.onnx --target cambricon-x --set memory.sb.bytes=65536

    Example: tilewright plan vgg16.onnx -t cambricon-x --planner greedy --beside exact
    """
    from tilewright.compiler.build import host_times, limits_of, settle_engines
    from tilewright.compiler.loops import every_kernel
    from tilewright.compiler.pipeline import plans_of, resolve, run_pipeline
    from tilewright.graph.dialect import network_of
    from tilewright.machine.energy import (
        area_of,
        area_text,
        energy_text,
        has_energy,
        network_energy,
    )
    from tilewright.planning import Planner
    from tilewright.planning.cost.balance import imbalance
    from tilewright.planning.cost.limits import most_blocks, move_text
    from tilewright.runtime.glance import duration, gap
    from tilewright.tile.counts import program_energy

    with console.refusals(as_json), console.progress(quiet) as progress:
        chosen, machine = resolve(target, None, options.values)
        second = None if beside is None else chosen.planner(beside, machine)
        begin = time.perf_counter()
        with chosen.planner(planner, machine) as asked:
            state = run_pipeline(
                options.source(model),
                chosen,
                machine,
                **options.given,
                **formats.on(machine),
                progress=progress,
                ask=asked,
                until="calibrate" if chosen.falls_back else "plan",
                loops=True,
            )
            settle_engines(state)
        elapsed = time.perf_counter() - begin
        every = list(every_kernel(state))
        others: dict[str, Plan] = {}
        if second is not None:
            # Kernels of two loops may have one symbol.
            kernels = [
                replace(each.compiled.kernel, symbol=each.name)
                for each in every
                if each.compiled.schedule is not None
            ]
            with second as asked:
                others = plans_of(
                    kernels, Planner(machine, chosen.timer(machine), ask=asked), progress
                )
    rows: list[dict[str, Any]] = []
    for each in every:
        item = each.compiled
        row: dict[str, Any] = {"name": each.name, "nodes": list(item.kernel.nodes)}
        if each.rounds > 1:
            row["rounds"] = each.rounds
        if item.schedule is None:
            symbol = item.kernel.symbol
            ops = network_of(each.state.network).kernels
            reason = next(op.told_reason for op in ops if op.symbol.data == symbol)
            rows.append(row | {"engine": "host", "reason": reason})
            continue
        plan = each.state.plans[item.kernel.symbol]
        row |= {"engine": "accelerator"} | _of_rounds(plan.to_json(), each.rounds)
        row["text"] = str(plan.schedule)
        row["unbalanced"] = imbalance(item.kernel, machine, plan.schedule)
        row["slow_move"] = move_text(item.kernel, machine, plan.schedule)
        blocks = most_blocks(item.kernel, machine, plan.schedule)
        many = blocks is not None and blocks.cycles >= MANY * plan.cycles
        row["blocks"] = str(blocks) if many else ""
        if found := program_energy(item.programs, machine):
            row["energy_pj"] = {name: n * each.rounds for name, n in found.items()}
        if beside is not None:
            row["beside"] = _of_rounds(others[each.name].to_json(), each.rounds)
        rows.append(row)
    limits = limits_of(state)
    seconds = None if machine.host is None else sum(host_times(state).values())
    energies = [row["energy_pj"] for row in rows if "energy_pj" in row]
    taken = sum(_cycles(row) for row in rows if row["engine"] == "accelerator")
    energy = network_energy(energies, machine, taken) if has_energy(machine) else {}
    if as_json:
        said = {"target": chosen.name, "machine": machine.name, "kernels": rows}
        if limits is not None:
            far = gap(taken, limits.cycles) if limits.cycles else None
            said |= {"limits": asdict(limits), "gap": far}
        said |= {"search_cut_kernels": _cut(rows)}
        said |= {} if seconds is None else {"host_seconds": seconds}
        said |= {"energy_pj": energy} if energy else {}
        console.print_json(said | ({"area_mm2": areas} if (areas := area_of(machine)) else {}))
        return
    planned = [row for row in rows if row["engine"] == "accelerator"]
    heads = ("cycles", "bound", "granule", "bytes")
    console.say(f"{'kernel':<18}" + "".join(f"{h:>12}" for h in heads) + "   eff. space")
    for row in rows:
        if row["engine"] == "host":
            console.say(f"{_name(row):<18} on the host: {row['reason']}")
            continue
        console.say(
            f"{_name(row):<18}{_cycles(row):>12,.0f}{row['bound_cycles']:>12,.0f}"
            f"{row['granule_bound_cycles']:>12,.0f}{row['moved_bytes']:>12,}"
            f"{row['efficiency']:>7.1%}{row['candidates']:>6,}{' ' if row['complete'] else '*'}\n"
            f"  {row['text']}"
        )
        if "rounds" in row:
            console.say(f"  {row['rounds']} rounds of a loop, counted together")
        if row["slow_move"]:
            console.say(f"  bound by {row['slow_move']}")
        if row["blocks"]:
            console.say(f"  small blocks: {row['blocks']}")
        if row["unbalanced"]:
            console.say(f"  not balanced: {row['unbalanced']}")
    if beside is not None and planned:
        _say_beside(planner, beside, planned)
    if any(not row["complete"] for row in planned):
        console.say("* a limit cut the space that was searched")
    lines = summary(rows, machine.clock_hz, elapsed, limits)
    if seconds is not None and machine.host is not None:
        both = taken / machine.clock_hz + seconds
        lines[-2] += (
            f"; {duration(seconds)} predicted for {machine.host.name}, {duration(both)} in all"
        )
    told = {"energy": energy_text(energy, machine), "area": area_text(machine)}
    figures = "; ".join(f"{name} {text}" for name, text in told.items() if text)
    lines[-1:-1] = [figures] if figures else []
    console.say("\n".join(["", *lines]))


COUNTED = frozenset(
    (
        *("predicted_cycles", "timed_cycles", "bound_cycles", "granule_bound_cycles"),
        "moved_bytes",
    )
)
"""The figures of a plan that a kernel takes anew in every round of a loop."""


def _of_rounds(plan: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The figures of a plan for all rounds of a loop that its kernel is in."""
    return {
        name: value * rounds if name in COUNTED and value is not None else value
        for name, value in plan.items()
    }


SLOWEST = 3
"""The number of slowest kernels that the summary names."""


def summary(
    rows: Sequence[dict[str, Any]],
    clock_hz: float,
    elapsed: float,
    limits: NetworkLimits | None = None,
) -> list[str]:
    """Summarise a plan in ten lines at most: time, bounds, the slowest kernels, limits, the
    host's.

    ``elapsed`` are the seconds that the command has taken from the model to the plan.
    """
    from tilewright.runtime.glance import duration

    planned = [row for row in rows if row["engine"] == "accelerator"]
    host = [str(row["name"]) for row in rows if row["engine"] == "host"]
    lines: list[str] = []
    cycles = sum(_cycles(row) for row in planned)
    if planned:
        bound = sum(row["bound_cycles"] for row in planned)
        granule = sum(row["granule_bound_cycles"] for row in planned)
        moved = sum(row["moved_bytes"] for row in planned)
        lines += [
            f"total {cycles:,.0f} cycles, {duration(cycles / clock_hz)}, in {len(planned)} kernels"
            f" that move {moved:,} bytes",
            f"granule bound {granule:,.0f} cycles, {_share(granule, cycles)} of the total; "
            f"physical bound {bound:,.0f}, {_share(bound, cycles)}",
        ]
        slowest = sorted(planned, key=_cycles, reverse=True)[:SLOWEST]
        lines += [
            f"  {_name(row):<18}{_cycles(row):>12,.0f} cycles, {_share(_cycles(row), cycles)}"
            for row in slowest
        ]
        lines += [] if limits is None else _limits(limits, cycles)
    if host:
        few = ", ".join(host[:SLOWEST]) + (" and others" if len(host) > SLOWEST else "")
        lines.append(f"on the host: {len(host)} of {len(rows)} kernels ({few}; their rows say why)")
    else:
        lines.append("on the host: no kernel")
    searched = sum(row["seconds"] for row in planned)
    found = f"; it finished for {len(planned) - _cut(planned)} of {len(planned)} kernels"
    lines.append(
        f"took {elapsed:.2f} s, the search for schedules {searched:.2f} s"
        + (found if planned else "")
    )
    return lines


def _limits(limits: NetworkLimits, cycles: float) -> list[str]:
    """The bound with all intermediates on the chip, and how busy what is."""
    from tilewright.runtime.glance import gap

    limited = ", ".join(f"{name} {n}" for name, n in limits.kernels.items())
    far = f"; gap at most {gap(cycles, limits.cycles):.1%}" if limits.cycles else ""
    busy = ", ".join(f"{name} {_share(n, cycles)}" for name, n in limits.work.items())
    return [
        f"bound with all intermediates on the chip {limits.cycles:,.0f}, by {limits.resource}{far}",
        f"kernels limited by {limited}; busy: {busy}",
    ]


def _cut(rows: Sequence[dict[str, Any]]) -> int:
    """The number of kernels of which a limit cut the search for schedules."""
    return sum(row["engine"] == "accelerator" and not row["complete"] for row in rows)


def _share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    return f"{part / whole:.1%}" if whole else "0 %"


def _say_beside(planner: str, beside: str, rows: list[dict[str, Any]]) -> None:
    """Two planners' cycles and steps (tilings that they looked at), kernel by kernel."""
    console.say(f"\n{planner} beside {beside}:")
    console.say(
        f"{'kernel':<18}{'cycles':>12}{'beside':>12}{'ratio':>8}"
        f"{'steps':>11}{'beside':>11}{'ratio':>8}"
    )
    total = [0.0, 0.0, 0, 0]
    for row in rows:
        other = row["beside"]
        figures = [_cycles(row), _cycles(other), row["candidates"], other["candidates"]]
        total = [left + right for left, right in zip(total, figures, strict=True)]
        console.say(_compared(_name(row), figures))
    console.say(_compared("total", total))


def _compared(name: str, figures: list[float]) -> str:
    """A line of two times and two numbers of steps."""
    ours, theirs, steps, others = figures
    return (
        f"{name:<18}{ours:>12,.0f}{theirs:>12,.0f}{ours / max(theirs, 1):>8.3f}"
        f"{steps:>11,}{others:>11,}{others / max(steps, 1):>8.2f}"
    )


def _name(row: dict[str, Any]) -> str:
    """A kernel's name, cut to its column."""
    name = str(row["name"])
    return name if len(name) <= 18 else f"{name[:15]}..."


def _cycles(row: dict[str, Any]) -> float:
    """Simulated cycles where the planner had a timer, else predicted ones."""
    timed = row["timed_cycles"]
    return row["predicted_cycles"] if timed is None else timed
