"""Runtime: packages on disk, and running them."""

from tilewright.runtime.cache import Cache
from tilewright.runtime.dynamic import DynamicExecutable
from tilewright.runtime.executable import Check, Executable
from tilewright.runtime.manifest import KernelEntry, Manifest, read_manifest

__all__ = [
    "Cache",
    "Check",
    "DynamicExecutable",
    "Executable",
    "KernelEntry",
    "Manifest",
    "read_manifest",
]
