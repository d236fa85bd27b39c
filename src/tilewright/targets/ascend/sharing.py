"""Blocks on several cores: what each gets of main memory, and when the last one is done.

Cores load from a cache in front of main memory (L2), which they share. Where it holds all tensors
of a kernel, every byte of a tensor comes from memory once, for all blocks. A core that loads a
tensor then gets the least of

- what the cache gives a core (``DaVinci.hit``);
- its part of the memory's bandwidth, at most what its own path takes, times how often all blocks
  together load each byte of the tensor.

Where the cache does not hold them, every load is one of memory. Results go to the cache where it
holds them: a core stores as fast as its path takes. The cache is empty when a kernel begins, so
what the kernel before has left there counts for nothing.

One core is simulated for each kind of block (blocks.py), with all cores at work: as if they were at
it all the time, also where a last round leaves some without a block. Blocks go to cores in order,
each to the one that is free first; a launch ends with the last of them. What a launch of several
blocks takes to start is not public, and 0 here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapreplace

from tilewright.targets.ascend.blocks import alike, traces
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Access, Executed, Program
from tilewright.targets.ascend.timing import Timed, Timing, bytes_of, simulate_trace


def simulate_blocks(
    program: Program,
    core: DaVinci,
    *,
    length: int | None = None,
    commands: list[Timed] | None = None,
) -> Timing:
    """The times of a launch. ``busy`` are cycles of a core, of all cores on average; ``commands``
    gets the commands of the first block."""
    steps = traces(program, length)
    rates = loading_rates(program, steps, core)
    first = alike(steps)
    known = {
        number: simulate_trace(
            *(steps[number], core), rates=rates, commands=None if number else commands
        )
        for number in {*first}
    }
    times = [known[number] for number in first]
    pipes = times[0].busy
    busy = {pipe: sum(time.busy[pipe] for time in times) / core.cores for pipe in pipes}
    cycles = makespan([time.cycles for time in times], core.cores)
    main_bytes = sum(time.main_bytes for time in times)
    return Timing(cycles=cycles, busy=busy, main_bytes=main_bytes)


def makespan(cycles: Sequence[float], cores: int) -> float:
    """Return the end of the last block, if each in order goes to the core that is free first."""
    free = [0.0] * cores
    for taken in cycles:
        heapreplace(free, free[0] + taken)
    return max(free)


def loading_rates(
    program: Program, steps: Sequence[Sequence[Executed]], core: DaVinci
) -> Mapping[tuple[str, str], float]:
    """Bytes a cycle between each tensor and the memories that it is moved to and from; none where
    each core has its own share of main memory."""
    if not core.memory:
        return {}
    cached = sum(tensor.bytes for tensor in program.tensors) <= core.l2
    loaded: dict[str, int] = {}
    boxes: dict[str, set[Access]] = {}
    loading = 0
    for block in steps:
        reads = [part for step in block for part in step.reads if part.home.startswith("gm ")]
        # A shorter length leaves some blocks nothing to do.
        loading += bool(reads)
        for access in reads:
            loaded[access.home] = loaded.get(access.home, 0) + bytes_of(access)
            boxes.setdefault(access.home, set()).add(access)
    share = core.memory / min(core.cores, max(loading, 1))
    rates: dict[tuple[str, str], float] = {}
    for tensor in program.tensors:
        home = f"gm {tensor.name}"
        # What different loads have in common (halos) counts once for each, up to the tensor.
        once = min(tensor.bytes, sum(map(bytes_of, boxes.get(home, ()))))
        often = max(1.0, loaded[home] / once) if once else 1.0
        for (source, target), path in core.paths.items():
            rate = min(path, share)
            if source == "gm":
                rates[home, target] = min(core.hit, rate * often) if cached else rate
            elif target == "gm":
                rates[source, home] = path if cached else rate
    return rates
