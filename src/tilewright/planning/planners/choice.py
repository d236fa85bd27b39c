"""The planners by name: which there are, their options, and which machines they are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.choices import PLANNERS
from tilewright.errors import choose, refuse
from tilewright.machine import Machine
from tilewright.planning import PlanCache, Search, Timer, plan
from tilewright.planning.domain import Kernel
from tilewright.planning.measurements import Measurements
from tilewright.planning.mesh import Mesh
from tilewright.planning.plan import Plan
from tilewright.planning.planners.greedy import AUTOMATIC, Greedy
from tilewright.planning.planners.ldm.buffers import BLOCK
from tilewright.planning.planners.ldm.planner import Ldm
from tilewright.planning.planners.listed import Listed
from tilewright.planning.planners.measured import Measure, best_known, plan_measured
from tilewright.planning.planners.rows import Rows
from tilewright.planning.planners.stationary import KINDS, Kind, Stationary, is_product
from tilewright.planning.planners.swatop import Swatop

CUTTING = ("exact", "greedy", "ldm", "rows", "space", "stationary", "swatop", "blackbox")
"""Planners that cut tiles for memories that software manages."""

Chosen = Callable[[Kernel], Plan | None]
"""A kernel's plan, or None where the machine's cost model is to say."""

_TEXT = re.compile(r"([a-z]{1,20})(?:\{([^{}]{0,400})\})?")

_OPTIONS = {
    "greedy": {"start": ("one", "granule"), "buffers": ("auto", "1", "2")},
    "ldm": {
        "block": ("16", "32", "64", "128", "256"),
        "buffers": ("auto", "1", "2"),
        "share": ("none", "mesh", "broadcast"),
    },
    "swatop": {"top": ("1", "4", "16"), "share": ("mesh", "none")},
    "blackbox": {"share": ("mesh", "none")},
    "stationary": {"kind": KINDS, "buffers": ("1", "2")},
}
"""Planners with options, and the values of each."""


@contextmanager
def planner_of(
    text: str,
    machine: Machine,
    *,
    timer: Timer | None = None,
    measure: Measure | None = None,
    built: str = "",
    database: str | Path | None = None,
    mesh: Mesh | None = None,
) -> Generator[Chosen | None]:
    """The planner that a text names (``greedy{start=granule buffers=1}``), its database open.

    None for the machine's cost model alone. ``timer``, ``measure`` and ``built`` are the target's.
    Raises TilewrightError (``option-planner``, ``target-measure``).
    """
    name, options = _parsed(text)
    if name in CUTTING:
        places = [p.operands["output"] for p in machine.primitives if "output" in p.operands]
        if all(place.memory == machine.main for place in places):
            raise refuse(
                "option-planner",
                f"{machine.name} computes in place behind caches, and {name} cuts tiles for "
                "memories that software manages",
                help="model, measured",
            )
        if database is not None:
            raise refuse(
                "option-planner", f"{name} asks no database of measured schedules", help="model"
            )
    cache: PlanCache = {}
    if name in ("greedy", "ldm", "rows"):
        tiling: Search = Rows()
        if name != "rows":
            tiling = _greedy(options) if name == "greedy" else _ldm(options, machine, mesh)
        yield lambda kernel: plan(kernel, machine, timer=timer, cache=cache, search=tiling)
        return
    if name in ("swatop", "blackbox"):
        _shares(options, machine, mesh)
        own = None if options.get("share") == "none" else mesh
        strategies = Swatop(int(options.get("top", "1")), name == "blackbox", own)
        yield lambda kernel: plan(kernel, machine, timer=timer, cache=cache, search=strategies)
        return
    if name == "space":
        if not options.get("file"):
            raise refuse("option-planner", "names no file of spaces", text[:80], "space{file=FILE}")
        own = mesh if mesh is not None and mesh.cores == machine.cores else None
        listed = Listed.read(Path(options["file"]), machine, own)
        yield listed
        listed.check()
        return
    if name == "stationary":
        search = _stationary(options)
        yield (
            lambda kernel: (
                plan(kernel, machine, timer=timer, cache=cache, search=search)
                if is_product(kernel)
                else None
            )
        )
        return
    if name == "exact" or (name == "model" and database is None):
        yield None
        return
    if measure is None:
        raise refuse("target-measure", f"{machine.name} is not at hand to measure anything on")
    with Measurements(database or ":memory:", built) as known:
        if name == "measured":
            yield lambda kernel: plan_measured(kernel, machine, measure, known)
        else:
            yield lambda kernel: best_known(kernel, machine, known)


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    """Name and options."""
    match = _TEXT.fullmatch(text)
    if match is None or match[1] not in PLANNERS:
        asked = re.split(r"\W", text.strip(), maxsplit=1)[0]
        raise refuse("option-planner", f"no planner {text[:80]!r}", help=choose(asked, PLANNERS))
    options: dict[str, str] = {}
    if match[1] == "space":
        key, _, value = (match[2] or "").partition("=")
        if key.strip() not in ("", "file"):
            raise refuse("option-planner", f"space takes no {key[:80]}", help="space{file=FILE}")
        return match[1], {"file": value.strip()}
    for part in (match[2] or "").replace(",", " ").split():
        key, _, value = part.partition("=")
        options[key] = value
    if options and match[1] not in _OPTIONS:
        raise refuse("option-planner", f"planner {match[1]} takes no options", text[:80])
    known = _OPTIONS.get(match[1], {})
    allowed = ", ".join(f"{key}={'|'.join(values)}" for key, values in known.items())
    for key, value in options.items():
        if value not in known.get(key, ()):
            raise refuse("option-planner", f"{match[1]} takes no {key}={value}", help=allowed)
    return match[1], options


def _greedy(options: dict[str, str]) -> Greedy:
    """The greedy planner with its options."""
    buffers = options.get("buffers", "auto")
    return Greedy(
        start=options.get("start", "one"),
        buffers=AUTOMATIC if buffers == "auto" else int(buffers),
    )


def _shares(options: dict[str, str], machine: Machine, mesh: Mesh | None) -> bool:
    """Whether cores are told to share operands; refuses it where there is no mesh."""
    shares = options.get("share", "none") != "none"
    if shares and (mesh is None or mesh.cores != machine.cores):
        reason = "has no mesh of cores" if mesh is None else f"has no {mesh.cores} cores in a mesh"
        raise refuse(
            "option-planner", f"{machine.name} {reason}", f"share={options['share']}", "share=none"
        )
    return shares


def _ldm(options: dict[str, str], machine: Machine, mesh: Mesh | None) -> Ldm:
    """swTVM's planner with its options; refuses to share where there is no mesh."""
    shares = _shares(options, machine, mesh)
    buffers = options.get("buffers", "auto")
    return Ldm(
        block=int(options.get("block", str(BLOCK))),
        buffers=AUTOMATIC if buffers == "auto" else int(buffers),
        mesh=mesh if shares else None,
        broadcast=options.get("share") == "broadcast",
    )


def _stationary(options: dict[str, str]) -> Stationary:
    """The stationary planner with its options."""
    kind: Kind = next(kind for kind in KINDS if kind == options.get("kind", "os"))
    return Stationary(kind, int(options.get("buffers", "1")))
