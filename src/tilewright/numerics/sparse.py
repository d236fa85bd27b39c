"""Weights compressed by step indexing, as the processing elements of Cambricon-X read them.

Outputs come in blocks of ``lanes`` neurons, one for each element; inputs in segments, so that the
sum over them may be split. Every block has, for every segment, one **stream** of 16-bit words:

    count[lanes]    entries of each neuron
    steps           one byte an entry, two to a word, neuron after neuron, the last padded with 0
    weights         one word an entry, in the same order

A neuron's entries run over (kh, kw, channel of the segment), the channel innermost, as the pixels
of an NHWC window do. The step is the distance from the entry before (from -1 for the first). A gap
longer than 255 is bridged by entries of weight 0. All streams are as long as the longest.

Zhang et al., "Cambricon-X: an accelerator for sparse neural networks", MICRO 2016, section 4.2:
16-bit synapses with their steps; the width of a step and the order of a stream are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.memory.alignment import align_up, ceil_div
from tilewright.numerics.arrays import Array

SHARE = 64
"""Parts of a cycle in which the mean time of a block and segment is counted (dim ``d``)."""

STEP = 255
"""The longest step of a stream."""


def encode(weights: Array, segment: int, lanes: int) -> NDArray[np.int16]:
    """Streams [blocks, segments, words] of int16 weights [co, ci, kh, kw].

    ``segment`` channels, which divide ci, are in each segment.
    """
    co, ci, _, _ = weights.shape
    blocks, segments = ceil_div(co, lanes), ci // segment
    rows = np.zeros((blocks * lanes, segments, weights[0].size // segments), np.int16)
    # [co, kh, kw, segments, channel] -> [co, segments, kh, kw, channel]
    split = weights.transpose(0, 2, 3, 1).reshape(co, *weights.shape[2:], segments, segment)
    rows[:co] = np.moveaxis(split, 3, 1).reshape(co, segments, -1)
    streams = [
        [_stream(rows[b * lanes : (b + 1) * lanes, s]) for s in range(segments)]
        for b in range(blocks)
    ]
    longest = max(stream.size for line in streams for stream in line)
    packed = np.zeros((blocks, segments, longest), np.int16)
    for b, line in enumerate(streams):
        for s, stream in enumerate(line):
            packed[b, s, : stream.size] = stream
    return packed


def _stream(rows: NDArray[np.int16]) -> NDArray[np.int16]:
    """One stream of neurons [lanes, positions]."""
    lane, place = np.nonzero(rows)
    before = np.where(np.diff(lane, prepend=-1) > 0, -1, np.roll(place, 1))
    gaps = place - before
    # Entries of weight 0 stand before those that are too far away.
    extra = (gaps - 1) // STEP
    ends = np.cumsum(extra + 1)
    steps = np.full(int(ends[-1]) if ends.size else 0, STEP, np.int64)
    values = np.zeros(steps.size, np.int16)
    steps[ends - 1] = gaps - extra * STEP
    values[ends - 1] = rows[lane, place]
    counts = np.bincount(lane, extra + 1, len(rows)).astype(np.uint16)
    padded = np.zeros(align_up(steps.size, 2), np.uint8)
    padded[: steps.size] = steps
    return np.concatenate([counts.view(np.int16), padded.view("<i2"), values])


def counts_of(streams: Array, lanes: int) -> NDArray[np.int64]:
    """Entries of each neuron in streams [..., words]: [..., lanes]."""
    return streams[..., :lanes].astype(np.uint16).astype(np.int64)


def steps_of(streams: Array, lanes: int) -> NDArray[np.int64]:
    """Steps of 16 (``lanes``) multipliers that each element takes: [..., lanes]."""
    return -(-counts_of(streams, lanes) // lanes)


def slowest(streams: Array, lanes: int) -> int:
    """Cycles a pixel of streams [blocks, segments, words]: those of the slowest element.

    Elements run asynchronously: each goes from neuron to neuron on its own.
    """
    steps = steps_of(streams, lanes)
    return int(steps.reshape(-1, lanes).sum(axis=0).max(initial=0))


GROUP = 8
"""Blocks and segments over which the elements' lead is measured."""


@dataclass(frozen=True)
class StreamCycles:
    """Cycles a pixel of ``k`` blocks and segments: min(k * alone, k * each + lead), in ``SHARE``.

    Elements that run through many neurons even out; one block alone waits for its slowest.
    """

    alone: int
    """The cycles of one block and segment, in the mean."""
    each: int
    """The cycles of every further one; with the lead, exact for all of them."""
    lead: int
    """The cycles by which the slowest element exceeds the mean, over ``GROUP`` of them."""


def stream_cycles_of(streams: Array, lanes: int) -> StreamCycles:
    """Measure how fast elements go through streams [blocks, segments, words]."""
    steps = steps_of(streams, lanes).transpose(1, 0, 2).reshape(-1, lanes)
    count, whole = len(steps), slowest(streams, lanes)
    alone = round(float(steps.max(axis=1).mean()) * SHARE)
    size = min(GROUP, count)
    groups = steps[: count // size * size].reshape(-1, size, lanes).sum(axis=1)
    mean = float(groups.max(axis=1).mean())
    lead = max(round((mean - size * whole / count) * SHARE), 0) if count > size else 0
    each = max((whole * SHARE - lead) // count, 0)
    return StreamCycles(max(alone, 1), max(each, 1), max(whole * SHARE - each * count, 1))


def decode(streams: Array, positions: int, lanes: int) -> NDArray[np.int16]:
    """Dense weights [blocks, lanes, segments, positions] of streams [blocks, segments, words].

    Raises ValueError for streams that no weights are encoded as.
    """
    blocks, segments, words = streams.shape
    decoded = np.zeros((blocks, lanes, segments, positions), np.int16)
    counts = counts_of(streams, lanes)
    totals = counts.sum(axis=-1)
    if np.any(lanes + (totals + 1) // 2 + totals > words):
        raise ValueError("a stream has more entries than words")
    for b in range(blocks):
        for s in range(segments):
            total, stream = int(totals[b, s]), np.ascontiguousarray(streams[b, s])
            if not total:
                continue
            start = lanes + (total + 1) // 2
            steps = stream[lanes:start].astype("<i2").view(np.uint8)[:total].astype(np.int64)
            lane = np.repeat(np.arange(lanes), counts[b, s])
            reached = np.cumsum(steps)
            # Each neuron starts anew: what those before it added up is taken off.
            ends = np.cumsum(counts[b, s])
            passed = np.concatenate([[0], reached])[np.concatenate([[0], ends[:-1]])]
            place = reached - passed[lane] - 1
            if np.any(steps == 0) or np.any(place >= positions):
                raise ValueError("a step leads out of the window")
            decoded[b, lane, s, place] = stream[start : start + total]
    return decoded


def dense(
    streams: Array, channels: int, kernel: tuple[int, int], segment: int, lanes: int
) -> NDArray[np.int16]:
    """Weights [co, ci, kh, kw] of streams, ``channels`` of them; the inverse of ``encode``."""
    blocks, segments, _ = streams.shape
    decoded = decode(streams, kernel[0] * kernel[1] * segment, lanes)
    split = decoded.reshape(blocks * lanes, segments, *kernel, segment)
    rows = np.moveaxis(split, 1, 3).reshape(blocks * lanes, *kernel, segments * segment)
    return rows[:channels].transpose(0, 3, 1, 2)
