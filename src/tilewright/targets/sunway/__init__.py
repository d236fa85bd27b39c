"""SW26010 ("Sunway"): packages of athread C for one core group, or all four."""

from tilewright.targets.sunway.target import ChipTarget, SunwayTarget

TARGET = SunwayTarget()
CHIP = ChipTarget()

__all__ = ["CHIP", "TARGET"]
