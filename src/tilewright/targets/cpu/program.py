"""What writers and runners of a program's directory agree on."""

from __future__ import annotations

MANIFEST = "program.json"
WEIGHTS_FILE = "weights.bin"

ALIGNMENT = 64
"""Bytes to which both arenas are aligned."""
