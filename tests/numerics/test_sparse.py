"""Step indexing: streams decode to the weights that they were made of, and tell the time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.numerics import sparse


def drawn(seed: int, shape: tuple[int, ...], density: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    weights = random.integers(-32768, 32768, shape).astype(np.int16)
    weights[random.random(shape) >= density] = 0
    return weights


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(1, 9),
    st.tuples(st.integers(1, 3), st.integers(1, 5)),
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    st.sampled_from([4, 8, 16]),
)
def test_streams_decode_to_the_weights(
    seed: int,
    co: int,
    segments: int,
    segment: int,
    kernel: tuple[int, int],
    density: float,
    lanes: int,
) -> None:
    weights = drawn(seed, (co, segments * segment, *kernel), density)
    streams = sparse.encode(weights, segment, lanes)
    assert streams.shape[:2] == (-(-co // lanes), segments)
    np.testing.assert_array_equal(sparse.dense(streams, co, kernel, segment, lanes), weights)


def test_a_stream_by_hand() -> None:
    """Two neurons of five positions: (0, 7, 0, 0, -2) and (1, 0, 0, 0, 0)."""
    weights = np.array([[0, 7, 0, 0, -2], [1, 0, 0, 0, 0]], np.int16)[:, :, None, None]
    (stream,) = sparse.encode(weights, 5, 2)[0]
    assert stream[:2].tolist() == [2, 1]
    assert stream[2:4].astype("<i2").tobytes() == bytes([2, 3, 1, 0])
    assert stream[4:].tolist() == [7, -2, 1]


def test_long_gaps_are_bridged_by_zeros() -> None:
    weights = np.zeros((1, 2000, 1, 1), np.int16)
    weights[0, [0, 255, 511, 1999], 0, 0] = [1, 2, 3, 4]
    streams = sparse.encode(weights, 2000, 1)
    # Gaps of 1, 255, 256 (one bridge) and 1488 (five bridges).
    assert sparse.counts_of(streams, 1).tolist() == [[[4 + 1 + 5]]]
    np.testing.assert_array_equal(sparse.dense(streams, 1, (1, 1), 2000, 1), weights)


def test_the_slowest_element_counts() -> None:
    """Facts: the maximum over elements of the sum of ceil(entries / 16) over their neurons."""
    weights = drawn(1, (100, 60, 3, 3), 0.2)
    streams = sparse.encode(weights, 60, 16)
    kept = np.count_nonzero(weights.reshape(100, -1), axis=1)
    work = [int(np.sum(-(-kept[lane::16] // 16))) for lane in range(16)]
    assert sparse.slowest(streams, 16) == max(work)


@pytest.mark.parametrize("place, value", [(0, -1), (16, 0), (16, -1)])
def test_streams_of_no_weights_are_refused(place: int, value: int) -> None:
    streams = sparse.encode(drawn(2, (16, 10, 1, 1), 0.6), 10, 16)
    streams[0, 0, place] = value
    with pytest.raises(ValueError):
        sparse.decode(streams, 10, 16)


@pytest.mark.parametrize("seed", range(4))
def test_stream_cycles_are_exact_for_all_and_near_for_some(seed: int) -> None:
    streams = sparse.encode(drawn(seed, (256, 64, 3, 3), 0.2), 16, 16)
    measured, steps = sparse.stream_cycles_of(streams, 16), sparse.steps_of(streams, 16)
    blocks, segments = steps.shape[:2]

    def cycles(k: int) -> float:
        return min(k * measured.alone, k * measured.each + measured.lead) / sparse.SHARE

    assert cycles(blocks * segments) == sparse.slowest(streams, 16)
    for b, s in ((1, 1), (4, 1), (8, 1), (1, 4), (16, 2)):
        boxes = [
            int(steps[i : i + b, j : j + s].sum(axis=(0, 1)).max())
            for i in range(0, blocks, b)
            for j in range(0, segments, s)
        ]
        assert cycles(b * s) == pytest.approx(np.mean(boxes), rel=0.12)
