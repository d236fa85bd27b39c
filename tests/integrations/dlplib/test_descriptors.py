import pytest

from tilewright.errors import TilewrightError
from tilewright.integrations.dlplib import (
    ConvolutionDescriptor,
    FilterDescriptor,
    LrnDescriptor,
    PoolingDescriptor,
    Shape,
    TensorDescriptor,
    fixed16,
)


def test_set_get_destroy() -> None:
    found = TensorDescriptor()
    with pytest.raises(TilewrightError, match=r"dlp-descriptor.*has not been set"):
        found.get()
    found.set((1, 2, 3, 4), fixed16(9), "NHWC")
    assert found.get() == Shape((1, 2, 3, 4), "NHWC", fixed16(9))
    assert found.get().stored == (1, 3, 4, 2) and found.get().bytes == 48
    found.destroy()
    for use in (found.get, found.destroy, lambda: found.set((1, 1, 1, 1))):
        with pytest.raises(TilewrightError, match=r"dlp-descriptor.*has been destroyed"):
            use()


@pytest.mark.parametrize(
    ("dims", "format"),
    [
        ((1, 2, 3), "NCHW"),
        ((1, 0, 1, 1), "NCHW"),
        ((1, 2, 3, 2**25), "NCHW"),
        ((1, 1, 1, 1), "CHW"),
    ],
)
def test_bad_attributes_are_refused(dims: tuple[int, ...], format: str) -> None:
    with pytest.raises(TilewrightError, match="dlp-parameter"):
        FilterDescriptor(dims, format=format)  # type: ignore[arg-type]
    with pytest.raises(TilewrightError, match=r"dlp-parameter.*bytes"):
        FilterDescriptor((1 << 20, 1 << 20, 1, 1))


def test_settings_are_checked() -> None:
    convolution, pooling, lrn = ConvolutionDescriptor(), PoolingDescriptor(), LrnDescriptor()
    convolution.set((2, 1), (1, 0), (1, 2), 4)
    assert convolution.get().pads == (1, 0, 1, 0)
    calls = [
        lambda: convolution.set((0, 1)),
        lambda: convolution.set((1, 1, 1)),
        lambda: convolution.set(pads=(1, 2, 3)),
        lambda: convolution.set(groups=0),
        lambda: convolution.set(activation="swish"),  # type: ignore[arg-type]
        lambda: pooling.set("median", (2, 2), (2, 2)),  # type: ignore[arg-type]
        lambda: pooling.set("max", (2, 2), (0, 2)),
        lambda: lrn.set(0),
        lambda: lrn.set(5, float("nan")),
        lambda: lrn.set(5, 1e-4, 0.75, 0.0),
    ]
    for call in calls:
        with pytest.raises(TilewrightError, match="dlp-parameter"):
            call()
    assert convolution.get().groups == 4
