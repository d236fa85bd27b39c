import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.integrations.dlplib import DeviceMemory


def code_of(call: object, *arguments: object) -> str:
    with pytest.raises(TilewrightError) as caught:
        call(*arguments)  # type: ignore[operator]
    return str(caught.value)


def test_copies_both_ways() -> None:
    memory = DeviceMemory()
    address = memory.malloc(100)
    assert memory.read(address, 100) == bytes(100)
    memory.write(address, np.arange(10, dtype=np.int16)[::-1])
    memory.write(address + 20, b"\x07\x08")
    assert memory.read(address, 22)[18:] == b"\x00\x00\x07\x08"
    other = memory.malloc(4)
    memory.copy(other, address + 18, 4)
    assert memory.read(other, 4) == b"\x00\x00\x07\x08"


def test_misuse_is_refused() -> None:
    memory = DeviceMemory(capacity=4096)
    first, second = memory.malloc(100), memory.malloc(64)
    assert "[dlp-memory]" in (text := code_of(memory.write, first + 90, bytes(11)))
    assert "1 bytes past the end" in text
    assert "nothing is allocated there" in code_of(memory.read, 0, 1)
    assert "nothing is allocated there" in code_of(memory.read, second + 64, 1)
    assert "overlap" in code_of(memory.copy, first + 10, first, 20)
    assert "no allocation begins there" in code_of(memory.free, first + 64)
    assert "[dlp-capacity]" in code_of(memory.malloc, 4000)
    assert "[dlp-parameter]" in code_of(memory.malloc, 0)
    assert "[dlp-parameter]" in code_of(memory.read, first, -1)
    assert "[dlp-parameter]" in code_of(memory.free, "first")
    memory.free(first)
    assert "freed already" in code_of(memory.free, first)
    assert "used after it was freed" in code_of(memory.read, first + 1, 1)
    # A new allocation does not make the old address good again.
    memory.malloc(100)
    assert "used after it was freed" in code_of(memory.read, first, 1)
    memory.free(second)


def test_random_ranges_stay_inside() -> None:
    random = np.random.default_rng(0)
    memory = DeviceMemory()
    sizes = {memory.malloc(int(size)): int(size) for size in random.integers(1, 300, 20)}
    low, high = min(sizes) - 200, max(sizes) + 500
    for _ in range(2000):
        address, size = int(random.integers(low, high)), int(random.integers(1, 300))
        inside = any(a <= address and address + size <= a + n for a, n in sizes.items())
        try:
            assert len(memory.read(address, size)) == size
            assert inside
        except TilewrightError:
            assert not inside
