"""What is cut out of an image of any size lies within it, and has the shape that is asked for."""

import pytest

from tilewright.numbers.calibration.images import middle


@pytest.mark.parametrize("size", [(224, 224), (299, 299), (32, 48), (7, 1000)])
def test_the_middle_lies_within_the_image(size: tuple[int, int]) -> None:
    rows, columns = size
    for width in range(1, 700, 13):
        for height in range(1, 700, 17):
            left, top, right, bottom = middle((width, height), size)
            assert 0 <= left < right <= width and 0 <= top < bottom <= height
            assert (right - left) * rows == pytest.approx((bottom - top) * columns, rel=1e-9)
            assert left + right == pytest.approx(width) and top + bottom == pytest.approx(height)
            assert left == 0 or top == 0 or min(left, top) < 1e-9 * max(width, height)
