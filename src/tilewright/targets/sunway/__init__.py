"""SW26010 ("Sunway"): packages of athread C for one core group."""

from tilewright.targets.sunway.target import SunwayTarget

TARGET = SunwayTarget()

__all__ = ["TARGET"]
