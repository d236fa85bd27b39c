"""Figures of memories from the package ``hwcomponents``, where it is installed.

    [memory.sram]
    bytes = 524288
    component = "SRAM tech_node=22e-9 width=128"

The first word is a component that one of the installed models knows (``hwc --list``), the others
are its attributes. ``width`` are bits of an access, 64 unless it is stated; ``depth`` and
``n_banks`` follow from the memory's bytes and banks. Energies are of reading and writing 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError, refuse

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Memory

KEYS = ("read_pj", "write_pj", "leakage_mw", "area_mm2")
"""The keys of a memory's figures."""

WIDTH = 64
"""Bits of an access where none are stated."""


def component_figure(memory: Memory, key: str) -> float | None:
    """A figure of a memory's component, in the unit of its key; None without a component.

    Raises TilewrightError (``machine-component``) where no installed model knows it.
    """
    if memory.component is None:
        return None
    return _figures(memory.component, memory.bytes, memory.banks)[key]


def with_figures(machine: Machine) -> Machine:
    """The machine with its components' figures as numbers, so that it can be read where their
    package is not installed."""
    if all(memory.component is None for memory in machine.memories):
        return machine
    memories = tuple(
        memory
        if memory.component is None
        else memory.model_copy(
            update={
                "component": None,
                **{
                    key: component_figure(memory, key)
                    for key in KEYS
                    if getattr(memory, key) is None
                },
            }
        )
        for memory in machine.memories
    )
    return machine.model_copy(update={"memories": memories})


@cache
def _figures(component: str, size: int | None, banks: int) -> Mapping[str, float]:
    name, attributes = parsed(component)
    width = attributes.setdefault("width", WIDTH)
    if size is not None:
        if not isinstance(width, int) or width < 1:
            raise refuse("machine-component", f"a width of {width} bits", component)
        attributes.setdefault("depth", max(1, size * 8 // width))
    if banks > 1:
        attributes.setdefault("n_banks", banks)
    try:
        package: Any = import_module("hwcomponents")
    except ImportError as error:
        reason = f"the figures of {name} come from the package hwcomponents, which is missing"
        help = "pip install hwcomponents hwcomponents-cacti, or give the figures"
        raise refuse("machine-component", reason, component, help) from error
    try:
        model = package.get_model(name, attributes, required_actions=["read", "write"])
        read, write = (_joules(getattr(model, n)(bits_per_action=8)) for n in ("read", "write"))
        figures = read * 1e12, write * 1e12, float(model.leak_power) * 1e3, float(model.area) * 1e6
    except TilewrightError:
        raise
    except Exception as error:  # Models of others may raise anything.
        said = str(error).strip().splitlines() or [type(error).__name__]
        help = "hwc --list names the components that are installed"
        raise refuse("machine-component", said[0][:200], component, help) from error
    return dict(zip(KEYS, figures, strict=True))


def _joules(action: Any) -> float:
    """The energy of an action: some versions give it with its latency."""
    return float(action[0] if isinstance(action, tuple) else action)


def parsed(component: str) -> tuple[str, dict[str, int | float | str]]:
    """The name and attributes of a component's text; refuses (``machine-component``) others."""
    name, *words = component.split()
    attributes: dict[str, int | float | str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier() or not text:
            raise refuse("machine-component", f"{word!r} is no attribute", component, "key=value")
        attributes[key] = _number(text)
    return name, attributes


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
