"""The planners by name: what makes each, from its options, for a machine.

``system.choices.PLANNERS`` says what each does and which options it takes, for ``--help``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.errors import choose, refuse
from tilewright.machine import Machine
from tilewright.planning import Ask, Planner, Search, Timer
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Plan
from tilewright.planning.planners.by_node import by_spaces
from tilewright.planning.planners.greedy import AUTOMATIC, Greedy
from tilewright.planning.planners.ldm.buffers import BLOCK
from tilewright.planning.planners.ldm.planner import Ldm
from tilewright.planning.planners.measured import Measure, best_known, plan_measured
from tilewright.planning.planners.measurements import Measurements
from tilewright.planning.planners.rows import Rows
from tilewright.planning.planners.stationary import KINDS, Kind, Stationary, is_product
from tilewright.planning.planners.swatop import Swatop
from tilewright.planning.space.mesh import Mesh
from tilewright.system.choices import PLANNERS

_TEXT = re.compile(r"([a-z]{1,20})(?:\{([^{}]{0,400})\})?")


@dataclass(frozen=True)
class Request:
    """A planner that is asked for by name, and what a target has for it."""

    name: str
    machine: Machine
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    timer: Timer | None = None
    measure: Measure | None = None
    built: str = ""
    """A text that tells how ``measure`` builds kernels."""
    database: str | Path | None = None
    mesh: Mesh | None = None

    def of(self, search: Search) -> AbstractContextManager[Ask]:
        """A planner by a search of its own."""
        return nullcontext(Planner(self.machine, self.timer, search=search).plan)

    @property
    def buffers(self) -> int:
        """Slots of each buffer."""
        text = self.options.get("buffers", "auto")
        return AUTOMATIC if text == "auto" else int(text)

    def sharing_mesh(self) -> Mesh | None:
        """The mesh over which cores share operands, if they are told to; refuses it where there is
        none."""
        share = self.options.get("share", "none")
        if share == "none":
            return None
        if self.mesh is None or self.mesh.cores != self.machine.cores:
            cores = "mesh of cores" if self.mesh is None else f"{self.mesh.cores} cores in a mesh"
            reason = f"{self.machine.name} has no {cores}"
            raise refuse("option-planner", reason, f"share={share}", "share=none")
        return self.mesh


Made = AbstractContextManager[Ask | None]
"""A context whose value is a planner, or None for the machine's cost model."""


def _model(request: Request) -> Made:
    """The machine's cost model; with a database, the measured schedules that it has."""
    return nullcontext() if request.database is None else _measured(request)


@contextmanager
def _measured(request: Request) -> Generator[Ask | None]:
    """Schedules that were measured, or are now."""
    machine, measure = request.machine, request.measure
    if measure is None:
        raise refuse("target-measure", f"{machine.name} is not this computer to measure on")
    with Measurements(request.database or ":memory:", request.built) as known:
        if request.name == "measured":
            yield lambda kernel: plan_measured(kernel, machine, measure, known)
        else:
            yield lambda kernel: best_known(kernel, machine, known)


def _greedy(request: Request) -> Made:
    return request.of(Greedy(start=request.options.get("start", "one"), buffers=request.buffers))


def _ldm(request: Request) -> Made:
    search = Ldm(
        block=int(request.options.get("block", str(BLOCK))),
        buffers=request.buffers,
        mesh=request.sharing_mesh(),
        broadcast=request.options.get("share") == "broadcast",
    )
    return request.of(search)


def _swatop(request: Request) -> Made:
    request.sharing_mesh()
    mesh = None if request.options.get("share") == "none" else request.mesh
    top = int(request.options.get("top", "1"))
    return request.of(Swatop(top, request.name == "blackbox", mesh))


def _stationary(request: Request) -> Made:
    kind: Kind = next(kind for kind in KINDS if kind == request.options.get("kind", "os"))
    search = Stationary(kind, int(request.options.get("buffers", "1")))
    planner = Planner(request.machine, request.timer, search=search)

    def products(kernel: Kernel) -> Plan | None:
        return planner.plan(kernel) if is_product(kernel) else None

    return nullcontext(products)


@contextmanager
def _space(request: Request) -> Generator[Ask]:
    """The planner of a file of strategies. Leaving the context raises an error if no planned kernel
    computes a node that the file names."""
    file = request.options.get("file")
    if not file:
        raise refuse("option-planner", "names no file of spaces", "space", "space{file=FILE}")
    mesh = request.mesh if request.mesh and request.mesh.cores == request.machine.cores else None
    planner = by_spaces(Path(file), request.machine, mesh)
    yield planner
    planner.check()


MAKERS: Mapping[str, Callable[[Request], Made]] = {
    "model": _model,
    "exact": lambda request: nullcontext(),
    "greedy": _greedy,
    "ldm": _ldm,
    "rows": lambda request: request.of(Rows()),
    "space": _space,
    "stationary": _stationary,
    "swatop": _swatop,
    "blackbox": _swatop,
    "measured": _measured,
}
"""The functions that make each of ``PLANNERS``, by name."""


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
) -> Generator[Ask | None]:
    """The planner that a text names (``greedy{start=granule buffers=1}``), its database open.

    None for the machine's cost model alone. ``timer``, ``measure`` and ``built`` are the target's.
    Raises TilewrightError (``option-planner``, ``target-measure``).
    """
    name, options = _parsed(text)
    if PLANNERS[name].cuts_tiles:
        places = [p.operands["output"] for p in machine.primitives if "output" in p.operands]
        if all(place.memory == machine.main for place in places):
            raise refuse(
                "option-planner",
                f"{machine.name} computes in place on caches, and {name} cuts tiles for "
                "memories that software manages",
                help="model, measured",
            )
        if database is not None:
            raise refuse(
                "option-planner", f"{name} uses no database of measured schedules", help="model"
            )
    with MAKERS[name](
        Request(name, machine, options, timer, measure, built, database, mesh)
    ) as ask:
        yield ask


def check_planner(text: str) -> None:
    """Refuse (``option-planner``) a text that names no planner, or options that it has not."""
    _parsed(text)


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options of a planner's text."""
    match = _TEXT.fullmatch(text)
    if match is None or match[1] not in PLANNERS:
        asked = re.split(r"\W", text.strip(), maxsplit=1)[0]
        raise refuse("option-planner", f"no planner {text[:80]!r}", help=choose(asked, PLANNERS))
    name, listed = match[1], match[2] or ""
    known = PLANNERS[name].options
    # A path may have commas and blanks.
    parts = [listed] if "file" in known else listed.replace(",", " ").split()
    options = {key.strip(): value.strip() for key, _, value in (p.partition("=") for p in parts)}
    if options and not known:
        raise refuse("option-planner", f"planner {name} takes no options", text[:80])
    allowed = ", ".join(f"{key}={'|'.join(values)}" for key, values in known.items())
    for key, value in options.items():
        if key not in known or (known[key] != ("FILE",) and value not in known[key]):
            raise refuse("option-planner", f"{name} takes no {key}={value}"[:120], help=allowed)
    return name, options
