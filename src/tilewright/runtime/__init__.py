"""Runtime: packages on disk, and running them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.runtime.cache import Cache
    from tilewright.runtime.check import Check
    from tilewright.runtime.dynamic import DynamicExecutable
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.manifest import KernelEntry, Manifest, read_manifest

_HOMES = {
    "Cache": "cache",
    "Check": "check",
    "DynamicExecutable": "dynamic",
    "Executable": "executable",
    "KernelEntry": "manifest",
    "Manifest": "manifest",
    "read_manifest": "manifest",
}

__all__ = [
    "Cache",
    "Check",
    "DynamicExecutable",
    "Executable",
    "KernelEntry",
    "Manifest",
    "read_manifest",
]


def __getattr__(name: str) -> Any:
    """Import the names of the room on first use: a package that is found needs little of it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright.runtime' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tilewright.runtime.{_HOMES[name]}"), name)
