import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tilewright.errors import TilewrightError
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import (
    FLOAT32,
    Handle,
    Operand,
    OperatorCache,
    TensorDescriptor,
    fixed16,
)


def test_alike_calls_are_compiled_once() -> None:
    cache = OperatorCache()
    handle, other = Handle(cache=cache), Handle("cambricon-x-m", cache=cache)
    a = oracle.operand(handle, np.ones((1, 2, 3, 4)))
    b, y = oracle.operand(handle, np.full((1, 2, 3, 4), 2.0)), oracle.result(handle, (1, 2, 3, 4))
    dlplib.vector(handle, "add", a, b, y)
    dlplib.vector(handle, "add", y, b, y)
    assert cache.compiled == 1 and np.all(handle.load(y) == 5)
    dlplib.vector(handle, "sub", a, b, y)
    assert cache.compiled == 2
    x = oracle.operand(other, np.ones((1, 2, 3, 4)))
    dlplib.vector(other, "add", x, x, x)
    assert cache.compiled == 3 and len(cache) == 3
    cycles = [run.cycles for run in handle.runs]
    assert cycles[0] == cycles[1] and handle.cycles == sum(c for c in cycles if c is not None)


def test_least_recently_used_go_first() -> None:
    cache = OperatorCache(most=1)
    handle = Handle(cache=cache)
    x = oracle.operand(handle, np.ones((1, 2, 2, 2)))
    for operation in ("add", "sub", "add"):
        dlplib.vector(handle, operation, x, x, x)  # type: ignore[arg-type]
    assert cache.compiled == 3 and len(cache) == 1


def test_times_without_values() -> None:
    timed, run = Handle(compute=False), Handle()
    for handle in (timed, run):
        x, y = oracle.operand(handle, np.ones((1, 8, 6, 6))), oracle.result(handle, (1, 8, 6, 6))
        dlplib.vector(handle, "mul", x, x, y)
    assert timed.cycles == run.cycles > 0
    assert not timed.load(y).any() and run.load(y).all()


def test_misuse_is_refused() -> None:
    handle = Handle()
    x = oracle.operand(handle, np.ones((1, 2, 3, 4)))
    described = TensorDescriptor((1, 2, 3, 4), fixed16(12), "NHWC")
    short = Operand(described, handle.malloc(40))
    for bad in (short, Operand(described, short.address + 64), Operand(described, 0)):
        with pytest.raises(TilewrightError, match="dlp-memory"):
            dlplib.vector(handle, "add", x, x, bad)
        with pytest.raises(TilewrightError, match="dlp-memory"):
            dlplib.vector(handle, "add", x, bad, x)
    floats = handle.tensor(np.ones((1, 2, 3, 4)), FLOAT32)
    with pytest.raises(TilewrightError, match=r"dlp-type.*computes in fixed16"):
        dlplib.vector(handle, "add", x, floats, x)
    with pytest.raises(TilewrightError, match=r"dlp-memory.*not been freed"):
        handle.destroy()
    handle.free(short.address)
    handle.release(x, floats)
    with pytest.raises(TilewrightError, match=r"dlp-descriptor.*destroyed"):
        dlplib.vector(handle, "add", x, x, x)
    handle.destroy()
    with pytest.raises(TilewrightError, match="dlp-handle"):
        handle.malloc(4)
    assert handle.runs == []
    with pytest.raises(TilewrightError, match="target-unknown"):
        Handle("cambricon-y")


def test_outputs_must_not_overlap() -> None:
    handle = Handle()
    x, row = oracle.operand(handle, np.ones((1, 2, 2, 2))), oracle.operand(handle, np.ones((1, 2)))
    descriptor = dlplib.BatchNormDescriptor()
    descriptor.set()
    with pytest.raises(TilewrightError, match=r"dlp-memory.*overlap"):
        dlplib.batch_norm_backward(handle, descriptor, x, row, row, row, x, x, row, row)
