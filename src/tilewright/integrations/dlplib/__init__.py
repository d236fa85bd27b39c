"""DLPlib: a library over the accelerators, with handles, descriptors and device memory.

The programming model of the thesis on DLIR, HLAL and DLPlib, chapter 3: make a handle, descriptors
and memory; call operators one by one; release everything. docs/dlplib.md has an example.
"""

from tilewright.integrations.dlplib.compiled import OperatorCache
from tilewright.integrations.dlplib.descriptors import FilterDescriptor, Shape, TensorDescriptor
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.memory import DeviceMemory
from tilewright.integrations.dlplib.numeric import FLOAT32, NumericType, finest, fixed16, fixed32
from tilewright.integrations.dlplib.operators import (
    activation_backward,
    activation_forward,
    batch_norm_backward,
    batch_norm_forward,
    bias_backward,
    bias_type,
    concat,
    convolution_backward_data,
    convolution_backward_filter,
    convolution_forward,
    convolution_output,
    fully_connected_backward_data,
    fully_connected_backward_filter,
    fully_connected_forward,
    lrn_backward,
    lrn_forward,
    lstm_backward,
    lstm_forward,
    matrix_multiply,
    pooling_backward,
    pooling_forward,
    pooling_output,
    reshape,
    softmax_forward,
    transform,
    vector,
)
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
    "activation_backward",
    "activation_forward",
    "batch_norm_backward",
    "batch_norm_forward",
    "bias_backward",
    "bias_type",
    "concat",
    "convolution_backward_data",
    "convolution_backward_filter",
    "convolution_forward",
    "convolution_output",
    "finest",
    "fixed16",
    "fixed32",
    "fully_connected_backward_data",
    "fully_connected_backward_filter",
    "fully_connected_forward",
    "lrn_backward",
    "lrn_forward",
    "lstm_backward",
    "lstm_forward",
    "matrix_multiply",
    "pooling_backward",
    "pooling_forward",
    "pooling_output",
    "reshape",
    "softmax_forward",
    "transform",
    "vector",
]
