"""The requests to Linux to let this process use the processor's matrix tiles (AMX).

Their registers are 8 KB of each thread's state, which the system keeps for those processes alone
that have asked (Linux 5.16 and later, ``Documentation/arch/x86/xstate.rst``).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

TILE_FLAGS = ("amx_tile", "amx_bf16")
"""Flags in /proc/cpuinfo of processors with tiles that multiply bfloat16."""

_ARCH_PRCTL = 158
_SUPPORTED, _REQUEST = 0x1021, 0x1023
"""Requests of arch_prctl: ARCH_GET_XCOMP_SUPP and ARCH_REQ_XCOMP_PERM."""
TILE_DATA = 18
"""XFEATURE_XTILEDATA: a number of a feature, and of its bit."""


def _asked() -> bool:
    """Return True if the system is Linux on x86-64, which can be asked."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def prctl(code: int, argument: object) -> bool:
    """Ask the system by Linux's arch_prctl; whether it agreed."""
    system = ctypes.CDLL(None).syscall
    system.restype = ctypes.c_long
    return system(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(code), argument) == 0


@cache
def tiles_supported() -> bool:
    """Return True if the system supports the tiles; nothing changes for the process."""
    mask = ctypes.c_uint64(0)
    return _asked() and prctl(_SUPPORTED, ctypes.byref(mask)) and bool(mask.value >> TILE_DATA & 1)


def tiles_granted() -> bool:
    """Ask for the tiles, for all threads of this process; True if there is no need to."""
    return not _asked() or prctl(_REQUEST, ctypes.c_long(TILE_DATA))
