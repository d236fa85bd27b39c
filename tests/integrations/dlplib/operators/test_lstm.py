import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import Handle
from tilewright.ir.types import Array


def cells(pre: Array, u: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    """h, c (a step more) and gates in float64, of pre without what h adds, [t, n, 4h]."""
    hs, cs, gates = [h], [c], []
    for step in pre:
        i, f, g, o = np.split(step + hs[-1] @ u.T, 4, axis=-1)
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        g = np.tanh(g)
        cs.append(f * cs[-1] + i * g)
        hs.append(o * np.tanh(cs[-1]))
        gates.append(np.concatenate([i, f, g, o], -1))
    return np.stack(hs), np.stack(cs), np.stack(gates)


@pytest.mark.parametrize(
    ("target", "steps", "images", "ins", "hidden"),
    [
        pytest.param("cambricon", 3, 1, 5, 6, marks=pytest.mark.slow),
        pytest.param("cambricon", 1, 2, 4, 9, marks=pytest.mark.slow),
        pytest.param("cambricon-x", 2, 2, 3, 5, marks=pytest.mark.slow),
        pytest.param("cpu", 3, 2, 3, 5, marks=pytest.mark.slow),
        pytest.param("cpu", 2, 3, 2, 1, marks=pytest.mark.slow),
    ],
)
def test_cells_and_their_gradients(
    target: str, steps: int, images: int, ins: int, hidden: int
) -> None:
    random = np.random.default_rng(steps)
    handle = Handle(target, check=True)
    x = oracle.operand(handle, random.normal(0, 1, (steps, images, 1, ins)))
    w = oracle.operand(handle, random.normal(0, 0.4, (4 * hidden, ins)), 12, filter=True)
    u = oracle.operand(handle, random.normal(0, 0.4, (4 * hidden, hidden)), 12, filter=True)
    kind = dlplib.bias_type(x.descriptor.get().type, w.descriptor.get().type)
    bias = handle.tensor(random.normal(0, 0.5, (1, 4 * hidden)), kind)
    h0, c0 = (oracle.operand(handle, random.normal(0, 0.5, (1, images, 1, hidden))) for _ in "hc")
    h, c = (oracle.result(handle, (steps + 1, images, 1, hidden)) for _ in "hc")
    gates = oracle.result(handle, (steps, images, 1, 4 * hidden), 14)
    dlplib.lstm_forward(handle, x, w, u, bias, h0, c0, h, c, gates)

    columns, inner = handle.load(w)[:, :, 0, 0], handle.load(u)[:, :, 0, 0]
    given = handle.load(x)[:, :, 0] @ columns.T + handle.load(bias).reshape(-1)
    states = handle.load(h0)[0, :, 0], handle.load(c0)[0, :, 0]
    expected = cells(given, inner, *states)
    # Tables of 256 segments err by some units of 2**-12, and steps add them up.
    for found, want, unit in zip((h, c, gates), expected, (1, 1, 4), strict=True):
        oracle.near(handle, found, want, 4 * unit * steps)

    dh = oracle.operand(handle, random.normal(0, 1, (steps, images, 1, hidden)))
    dgates = oracle.result(handle, (steps, images, 1, 4 * hidden))
    dlplib.lstm_backward(handle, u, c, gates, dh, dgates)
    slope = handle.load(dh)[:, :, 0]
    wanted = oracle.gradient(lambda pre: cells(pre, inner, *states)[0][1:], given, slope)
    oracle.near(handle, dgates, wanted, 8 * steps)


def test_weights_of_other_sizes_are_refused() -> None:
    handle = Handle("cambricon")
    dh, c = oracle.result(handle, (2, 1, 1, 4)), oracle.result(handle, (3, 1, 1, 4))
    gates, u = oracle.result(handle, (2, 1, 1, 16), 14), oracle.result(handle, (16, 5), filter=True)
    with pytest.raises(TilewrightError, match=r"dlp-shape.*u is 16x5x1x1.*16x4x1x1"):
        dlplib.lstm_backward(handle, u, c, gates, dh, gates)
