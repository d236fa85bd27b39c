"""Traces: a timeline as Chrome / Perfetto trace JSON.

Open the file at https://ui.perfetto.dev or chrome://tracing. The first track shows the kernels,
each from the end of all that came before it to its own end; then comes one track per engine with
its commands; then the counters. The rounds of a loop, whose body is a program of its own, are one
bar of the first track. Where latencies of an engine's transfers overlap, a command is
drawn from the end of the one before; ``args`` has its own start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tilewright.machine.model import Machine
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.timing import Spans

Events = tuple[Spans, TimedArray, Callable[[int], str]]
"""The events that a trace shows of a run: the times of commands, the commands, and their names."""

_CHUNK = 4096


@dataclass(frozen=True)
class Counter:
    """A figure over time: ``values[n]`` holds from ``times[n]`` (in cycles) to the next time."""

    name: str
    unit: str
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Rounds:
    """A loop of a run: the rounds of a body that is a program of its own."""

    name: str
    nodes: Sequence[str]
    count: int
    start: float
    end: float
    bytes: int
    """Bytes through main memory, of all rounds."""
    kernels: Mapping[str, float]
    """The cycles of the body's kernels, of all rounds."""


def write_trace(
    path: Path,
    spans: Spans,
    commands: TimedArray,
    machine: Machine,
    *,
    kernels: Sequence[str] = (),
    nodes: Sequence[Sequence[str]] = (),
    label: Callable[[int], str] | None = None,
    line: Callable[[int], str] | None = None,
    counters: Iterable[Counter] = (),
    loops: Sequence[Rounds] = (),
) -> None:
    """Write one event per command; ``kernels[k]`` names kernel k, ``nodes[k]`` its model nodes.

    ``label`` names a command (by default it bears its kernel's name), ``line`` its place in a
    source text. ``counters`` come as tracks of their own. ``loops`` run between kernels, and are
    bars of the kernels' track: one for all rounds. Times are those of ``machine.clock_hz``.
    The same spans give the same bytes; the file is written piece by piece, in memory that does not
    grow with the number of commands.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        separator = ""
        for event in _events(spans, commands, machine, kernels, nodes, label, line, loops):
            file.write(separator + event)
            separator = ",\n"
        for event in _counted(counters, machine):
            file.write(separator + event)
            separator = ",\n"
        file.write("\n]}\n")


def _events(
    spans: Spans,
    commands: TimedArray,
    machine: Machine,
    kernels: Sequence[str],
    nodes: Sequence[Sequence[str]],
    label: Callable[[int], str] | None,
    line: Callable[[int], str] | None,
    loops: Sequence[Rounds],
) -> Iterator[str]:
    tracks = ["kernels", *(engine.name for engine in machine.engines)]
    yield _json({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": machine.name}})
    for track, name in enumerate(tracks):
        meta = {"ph": "M", "pid": 0, "tid": track}
        yield _json({**meta, "name": "thread_name", "args": {"name": name}})
        yield _json({**meta, "name": "thread_sort_index", "args": {"sort_index": track}})
    scale = 1e6 / machine.clock_hz

    # What does not change from command to command is encoded once.
    names = _Encoded(lambda k: kernels[k] if k < len(kernels) else f"kernel {k}")
    about = _Encoded(lambda k: list(nodes[k]) if k < len(nodes) else [])

    def complete(track: int, name: str, start: float, end: float, args: str) -> str:
        """A complete event; microseconds with fixed digits, so that its bytes are settled."""
        return (
            f'{{"ph": "X", "pid": 0, "tid": {track}, "name": {name}, "ts": {start * scale:.6f}, '
            f'"dur": {(end - start) * scale:.6f}, "args": {{{args}}}}}'
        )

    before, waiting = 0.0, list(loops)

    def rounds(until: float) -> Iterator[str]:
        """The bars of the loops that begin before a time."""
        nonlocal before
        while waiting and waiting[0].start < until:
            loop = waiting.pop(0)
            cycles = ", ".join(f"{_json(k)}: {c:.3f}" for k, c in loop.kernels.items())
            args = (
                f'"nodes": {_json(list(loop.nodes))}, "bytes": {loop.bytes}, '
                f'"cycles": {loop.end - loop.start:.3f}, "rounds": {loop.count}, '
                f'"kernels": {{{cycles}}}'
            )
            name = _json(f"{loop.count} rounds of {loop.name}")
            yield complete(0, name, loop.start, loop.end, args)
            before = max(before, loop.end)

    for kernel, end in enumerate(spans.kernel_end.tolist()):
        yield from rounds(end)
        if end > before:
            size = int(spans.kernel_bytes[kernel])
            args = f'"nodes": {about[kernel]}, "bytes": {size}, "cycles": {end - before:.3f}'
            yield complete(0, names[kernel], before, end, args)
            before = end
    yield from rounds(inf)
    last = [0.0] * len(machine.engines)
    for begin in range(0, len(commands), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        rows = zip(
            commands["engine"][part].tolist(),
            commands["kernel"][part].tolist(),
            commands["bytes"][part].tolist(),
            spans.start[part].tolist(),
            spans.data[part].tolist(),
            spans.end[part].tolist(),
            strict=True,
        )
        for command, (engine, kernel, size, start, data, end) in enumerate(rows, begin):
            shown = max(start, last[engine])
            last[engine] = end
            args = (
                f'"command": {command}, "kernel": {names[kernel]}, "nodes": {about[kernel]}, '
                f'"bytes": {size}, "start": {start:.3f}, "cycles": {end - start:.3f}, '
                f'"busy": {end - data:.3f}'
            )
            if line is not None:
                args += f', "line": {_json(line(command))}'
            name = names[kernel] if label is None else _json(label(command))
            yield complete(engine + 1, name, shown, end, args)


def _counted(counters: Iterable[Counter], machine: Machine) -> Iterator[str]:
    """The events of counters."""
    scale = 1e6 / machine.clock_hz
    for counter in counters:
        name, unit = _json(counter.name), _json(counter.unit)
        for time, value in zip(counter.times, counter.values, strict=True):
            yield (
                f'{{"ph": "C", "pid": 0, "name": {name}, "ts": {time * scale:.6f}, '
                f'"args": {{{unit}: {value:.12g}}}}}'
            )


class _Encoded(dict[int, str]):
    """The JSON of something about a kernel, made when first asked for."""

    def __init__(self, about: Callable[[int], Any]) -> None:
        super().__init__()
        self.about = about

    def __missing__(self, kernel: int) -> str:
        self[kernel] = _json(self.about(kernel))
        return self[kernel]


def _json(value: Any) -> str:
    return json.dumps(value)
