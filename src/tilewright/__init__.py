"""Tilewright: a compiler for processors whose fast memory is managed by software.

import tilewright

executable = tilewright.compile("resnet50.onnx", target="cambricon-x")
outputs = executable.run({"data": image})
print(executable.report())
"""

from __future__ import annotations

TYPE_CHECKING = False  # Importing typing takes long enough for ctrl-C (__main__.py).

if TYPE_CHECKING:
    from typing import Any

    from tilewright.compiler.api import compile
    from tilewright.compiler.packages import DynamicExecutable, Executable
    from tilewright.errors import TilewrightError
    from tilewright.frontends import load
    from tilewright.machine import Machine
    from tilewright.report.page.data import figures
    from tilewright.runtime import Cache
    from tilewright.shapes.forms import Bounds
    from tilewright.sweeps import sweep

    __version__: str

_HOMES = {
    "compile": "tilewright.compiler.api",
    "TilewrightError": "tilewright.errors",
    "load": "tilewright.frontends",
    "Machine": "tilewright.machine",
    "Executable": "tilewright.compiler.packages",
    "DynamicExecutable": "tilewright.compiler.packages",
    "Cache": "tilewright.runtime",
    "Bounds": "tilewright.shapes.forms",
    "figures": "tilewright.report.page.data",
    "sweep": "tilewright.sweeps",
}

__all__ = [
    "Bounds",
    "Cache",
    "DynamicExecutable",
    "Executable",
    "Machine",
    "TilewrightError",
    "__version__",
    "compile",
    "figures",
    "load",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that ``import tilewright`` stays quick."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tilewright")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"
