"""The planners by name, each made from its options for a machine.

``system.choices.PLANNERS`` lists them, with the function that makes each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tilewright.errors import choose, refuse
from tilewright.machine import Machine
from tilewright.planning import Ask, Planner, Search, Timer
from tilewright.planning.planners.measurements import Measure
from tilewright.planning.space.mesh import Mesh
from tilewright.system.choices import PLANNERS
from tilewright.system.files import need_file

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

    def searching(self, search: Search) -> Planner:
        """The planner by a search of its own."""
        return Planner(self.machine, self.timer, search=search)

    def of(self, search: Search) -> Made:
        """``searching`` in a context that has nothing to close."""
        return nullcontext(self.searching(search).plan)

    def buffers(self, automatic: int) -> int:
        """Slots of each buffer; ``automatic`` where the planner is to choose."""
        text = self.options.get("buffers", "auto")
        return automatic if text == "auto" else int(text)

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
    Raises TilewrightError (``option-planner``, ``target-measure``; ``tuning-database`` for a file
    that is not there and that nothing would be measured for).
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
    if database is not None and name == "model":
        need_file(Path(database), "tuning-database", "tilewright tune makes one")
    maker = PLANNERS["measured" if name == "model" and database else name].maker
    if not maker:
        yield None
        return
    module, function = maker.split(":")
    make: Callable[[Request], Made] = getattr(import_module(module), function)
    with make(Request(name, machine, options, timer, measure, built, database, mesh)) as ask:
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
