"""DLPlib: a library over the accelerators, with handles, descriptors and device memory.

The programming model of the thesis on DLIR, HLAL and DLPlib, chapter 3: make a handle, descriptors
and memory; call operators one by one; release everything. docs/dlplib.md has an example.
"""

from tilewright.integrations.dlplib import operators
from tilewright.integrations.dlplib.compiled import OperatorCache
from tilewright.integrations.dlplib.descriptors import (
    FLOAT32,
    FilterDescriptor,
    NumericType,
    Shape,
    TensorDescriptor,
    finest,
    fixed16,
    fixed32,
)
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.memory import DeviceMemory
from tilewright.integrations.dlplib.operators import *  # noqa: F403
from tilewright.integrations.dlplib.operators.settings import (
    ActivationDescriptor,
    BatchNormDescriptor,
    ConvolutionDescriptor,
    LrnDescriptor,
    PoolingDescriptor,
)

__all__ = [
    "FLOAT32",
    "ActivationDescriptor",
    "BatchNormDescriptor",
    "ConvolutionDescriptor",
    "DeviceMemory",
    "FilterDescriptor",
    "Handle",
    "LrnDescriptor",
    "NumericType",
    "Operand",
    "OperatorCache",
    "PoolingDescriptor",
    "Ran",
    "Shape",
    "TensorDescriptor",
    "finest",
    "fixed16",
    "fixed32",
]
__all__ += operators.__all__
