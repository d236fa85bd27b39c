"""Runtime: packages on disk, and running them."""

from tilewright.runtime.executable import Check, Executable
from tilewright.runtime.manifest import KernelEntry, Manifest, read_manifest

__all__ = ["Check", "Executable", "KernelEntry", "Manifest", "read_manifest"]
