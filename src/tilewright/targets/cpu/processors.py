"""Processors that packages are made for, by name: the one at hand, and those of cross builds."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.codegen.c.compiler import defines
from tilewright.targets.cpu.builds import (
    BUILDS,
    NATIVE,
    Build,
    build_of,
    cpuinfo,
    listed_flags,
)
from tilewright.targets.cpu.planning.costs import CacheCosts
from tilewright.targets.cpu.tiles import TILE_FLAGS, tiles_supported


@dataclass(frozen=True)
class Processor(Build):
    """The properties of a processor for its machine description, and its compiler flags."""

    lanes: int = 16
    """float32 lanes of one vector."""
    registers: int = 32
    """The number of vector registers."""
    vectors_per_cycle: float = 1.0
    """Multiply-adds on whole vectors in one cycle."""
    level1_bytes: int = 32 << 10
    level2_bytes: int = 1 << 20
    level3_bytes: int = 16 << 20
    word_bytes: int = 2
    """Bytes whose products a lane adds up in one step: four with dot products of bytes; else two,
    as 16-bit numbers."""
    words_per_cycle: float = 1.5
    """Such steps on whole vectors in one cycle. Of 16-bit numbers one instruction multiplies and
    another adds."""
    pairs_per_cycle: float = 0.0
    """Dot products of two bfloat16 on whole vectors in one cycle; 0 without the instruction."""
    block_cycles: float = 0.0
    """Cycles in which matrix tiles multiply 16 points with 16 output channels, over 32 inputs, in
    pieces of bfloat16 (targets/cpu/planning/pieces.py); 0 without such tiles."""
    cores: int = 1
    """Cores that the larger kernels' loops are divided for; they run on any number of threads."""
    clock_hz: float = 3.7e9
    """Nominal, a server's highest: measured times do not use it, efficiencies do."""
    bandwidths: tuple[float, float, float, float] = (56.0, 28.0, 24.0, 7.5)
    """Bytes per cycle that are read from the three caches and main memory; measured, as the next
    field, by calibrate.py."""
    tiles: tuple[tuple[float, float, float, float], ...] = ()
    """Vectors, points, cycles of a step and of a call of measured register tiles (Eq. 2 of swATOP);
    empty where they follow from the rates."""
    parts: tuple[tuple[float, float, float, float], ...] = ()
    """Rows like those of ``tiles``, for blocks in scratch (primitives/block_products.py)."""
    cache_costs: CacheCosts = field(default_factory=CacheCosts)


BLOCK_CYCLES = 48.0
"""``block_cycles`` with AMX: a row of a tile takes a cycle, and pieces make three products."""


def _of(name: str, lanes: int, registers: int, vectors_per_cycle: float, **more: Any) -> Processor:
    return Processor(lanes, registers, vectors_per_cycle, **vars(BUILDS[name]), **more)


_CROSS = (
    _of("avx512", 16, 32, 2.0, words_per_cycle=1.0, cores=4),
    _of(
        *("amx", 16, 32, 2.0),
        level1_bytes=48 << 10,
        level2_bytes=2 << 20,
        word_bytes=4,
        words_per_cycle=2.0,
        block_cycles=BLOCK_CYCLES,
        cores=4,
    ),
    _of("avx2", 8, 16, 2.0, cores=4),
    # One of the 16 registers holds a product before it is added.
    _of("sse2", 4, 15, 2.0, cores=4),
    _of("neon", 4, 32, 2.0, cores=4),
    _of("portable", 4, 15, 2.0, cores=4),
    # No vectors: four floats lie in four of 32 registers, and each is added by itself.
    _of(
        *("cortex-m7", 4, 6, 0.25),
        level1_bytes=16 << 10,
        level2_bytes=64 << 10,
        level3_bytes=512 << 10,
        clock_hz=400e6,
    ),
)

PROCESSORS: Mapping[str, Processor] = {cpu.name: cpu for cpu in _CROSS}
"""The processors that ``--cpu`` takes beside ``native``; caches are taken at their common sizes."""


def processor(name: str) -> Processor:
    """The processor of that name; refuses an unknown one with the list."""
    return this_processor() if build_of(name).name == NATIVE else PROCESSORS[name]


_MESH = (80.0, 40.0, 8.0, 4.5)
"""Bytes per cycle on Intel's servers, whose last cache lies behind a mesh (measured)."""

_MESH_COSTS = CacheCosts(
    usable=0.7,
    exposed=0.06,
    near=0.45,
    cold=0.55,
    start_bytes=20.0,
    row_bytes=400.0,
    block_usable=0.61,
    panels=0.761,
    streamed=0.45,
    refetched=0.41,
    pixels=0.148,
    read_again=0.315,
    fetched=0.22,
    beside=0.7,
    summed=5.0,
    rewritten=3.0,
    written=0.34,
    returned=3.22,
)
"""Fitted there to kernels that ``python -m benchmarks swatop`` lists as developed on, ``refetched``
and ``block_usable`` with a look at the others (docs/papers/swatop.md); what weights cost that come
from memory, or are transformed as products need them, to layers (block_cost.py).
``cold`` is of one of these, 512 to 512 channels, 7x7 points: 1.49 ms with weights from memory, 1.19
without."""


_WIDE_COSTS = CacheCosts(
    crowded=0.025,
    block_usable=0.855,
    panels=0.318,
    streamed=0.377,
    refetched=0.13,
    pixels=0.79,
    read_again=0.355,
    written=1.543,
    returned=8.108,
    fetched=0.649,
    beside=0.729,
    summed=1.422,
    rewritten=3.379,
)
"""Costs of AMD's processors that execute 64-byte vectors whole (family 26, Zen 5). ``crowded`` is
of fully connected layers. The others were fitted there to the 18 smallest convolutions that
``python -m benchmarks swatop`` lists as developed on, and to layers of five networks, each run with
weights that no cache holds."""


_NARROW_COSTS = CacheCosts(exposed=0.35, row_bytes=400.0)
"""Costs of AMD's processors with AVX2 and without AVX-512 (families up to 25), whose second caches
are of 512 KB: weights of most products come from the last cache, and 64 bytes of a sum that goes on
take as long as the latency of where it lies. Fitted on family 25 to products of ``python -m
benchmarks swatop`` (``row_bytes``) and to those of BERT-base and ViT-B/16 (``exposed``)."""


_HALVES_COSTS = CacheCosts(
    row_bytes=360.0,
    block_usable=0.83,
    streamed=0.28,
    refetched=0.18,
    pixels=0.125,
    read_again=0.43,
    written=4.2,
    returned=9.2,
)
"""Costs of AMD's processors that execute 64-byte vectors as halves (family 25, Zen 4): 64 bytes of
a sum that goes on take as long as the latency of where it lies. Fitted there to the 80 products of
``python -m benchmarks swatop`` that are developed on, beside ``exposed`` from 0.05 to 0.35, which
stays as it is. The prices of blocks of tiles are fitted to its 40 convolutions that are."""


def processor_of(cpuinfo: str) -> Processor:
    """The processor that the text of /proc/cpuinfo describes (caches at their common sizes)."""
    names = listed_flags(cpuinfo)
    if {"avx512f", "avx512vl", "avx512dq"} <= names:
        family = re.search(r"^cpu family\s*:\s*(\d+)$", cpuinfo, re.MULTILINE)
        amd, intel = "AuthenticAMD" in cpuinfo, "GenuineIntel" in cpuinfo
        halves = amd and family is not None and int(family.group(1)) < 26
        rate, words = 1.0 if halves else 2.0, "avx512_vnni" in names
        costs = CacheCosts()
        if intel:
            costs = _MESH_COSTS
        elif amd:
            costs = _HALVES_COSTS if halves else _WIDE_COSTS
        return Processor(
            *(16, 32, rate),
            bandwidths=_MESH if intel else Processor.bandwidths,
            cache_costs=costs,
            word_bytes=4 if words else Processor.word_bytes,
            words_per_cycle=rate if words else rate / 2,
            pairs_per_cycle=rate if "avx512_bf16" in names else 0.0,
            block_cycles=BLOCK_CYCLES if names.issuperset(TILE_FLAGS) else 0.0,
        )
    if {"avx2", "fma"} <= names:
        costs = _NARROW_COSTS if "AuthenticAMD" in cpuinfo else CacheCosts()
        return Processor(8, 16, 2.0, cache_costs=costs)
    # Without AVX: 16-byte vectors. Arm's NEON has 32 registers; SSE has 16, and one of them holds a
    # product before it is added.
    neon = platform.machine() in ("aarch64", "arm64")
    return Processor(4, 32 if neon else 15, 2.0)


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""The folder in which Linux describes the caches of a core."""

_LAST = 3
"""Level of the cache before main memory."""

MOST_SHARED = 32 << 20
"""Bytes of a last cache that one core counts on at most: a virtual machine sees all of a server's,
and other machines' data lie in it."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cache_sizes(folder: Path) -> dict[int, int]:
    """Bytes of the caches that hold data, by level; none where the system does not tell.

    Of a last cache that several cores share, one core counts on a half: others' data lie there too
    (measured: what needs more is read from memory again).
    """
    sizes: dict[int, int] = {}
    for level_folder in folder.glob("index*"):
        try:
            level, kind, size, sharing = (
                (level_folder / name).read_text().strip()
                for name in ("level", "type", "size", "shared_cpu_list")
            )
        except OSError:
            continue
        text = re.fullmatch(r"([0-9]{1,12})([KMG]?)", size)
        if text and level in ("1", "2", "3") and kind in ("Data", "Unified"):
            shared = int(level) == _LAST and not sharing.isdigit()
            size = int(text[1]) * _UNITS[text[2]]
            sizes[int(level)] = min(size // 2, MOST_SHARED) if shared else size
    return {level: size for level, size in sizes.items() if size}


_TILE_MACRO = "__AMX_BF16__"
"""The macro that a compiler defines when it builds for matrix tiles (pieces.h)."""


@cache
def this_processor() -> Processor:
    """The processor that this process runs on, as far as the system and the compiler know it."""
    known, sizes = processor_of(cpuinfo()), cache_sizes(_CACHES)
    # Of a compiler that does not know matrix tiles (GCC before 11) the C emulates them, slowly.
    tiles = known.block_cycles and tiles_supported() and defines(_TILE_MACRO, known.flags)
    levels = {f"level{level}_bytes": size for level, size in sizes.items()}
    block_cycles = known.block_cycles if tiles else 0.0
    return replace(known, **levels, block_cycles=block_cycles, cores=os.cpu_count() or 1)
