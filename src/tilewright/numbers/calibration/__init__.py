"""Sample inputs: what they are read from, and the ranges of values that they give."""

from tilewright.numbers.calibration.channels import Channels, observed_channels
from tilewright.numbers.calibration.files import arrays_of, calibration_of, shapes_of
from tilewright.numbers.calibration.preprocessing import Preprocessing, preprocessing_of
from tilewright.numbers.calibration.ranges import observed_ranges
from tilewright.numbers.calibration.samples import (
    RANDOM_SAMPLES,
    Samples,
    SampleStream,
    sample_shapes,
    samples_of,
)

__all__ = [
    "RANDOM_SAMPLES",
    "Channels",
    "Preprocessing",
    "SampleStream",
    "Samples",
    "arrays_of",
    "calibration_of",
    "observed_channels",
    "observed_ranges",
    "preprocessing_of",
    "sample_shapes",
    "samples_of",
    "shapes_of",
]
