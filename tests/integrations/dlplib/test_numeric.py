import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.integrations.dlplib import FLOAT32, NumericType, finest, fixed16, fixed32


def test_encode_and_decode() -> None:
    values = np.array([0.1, -3.999, 8.0, np.nan])
    assert fixed16(12).encode(values).tolist() == [410, -16380, 32767, 0]
    assert fixed32(20).encode(values).dtype == np.int32
    assert np.allclose(fixed16(12).decode(fixed16(12).encode(values[:2])), values[:2], atol=2**-13)
    assert FLOAT32.encode(values).dtype == np.float32


def test_finest_holds_the_largest() -> None:
    for largest in np.random.default_rng(1).lognormal(0, 5, 50):
        fraction = finest(largest).fraction
        assert largest * 2.0**fraction <= 32767 or fraction == -16
        assert largest * 2.0 ** (fraction + 1) > 32767 or fraction == 30


def test_bad_types_are_refused() -> None:
    for make in (
        lambda: fixed16(31),
        lambda: fixed32(61),
        lambda: NumericType("float64"),  # type: ignore[arg-type]
        lambda: NumericType("float32", 3),
        lambda: finest(float("inf")),
    ):
        with pytest.raises(TilewrightError, match="dlp-type"):
            make()
