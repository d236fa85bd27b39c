"""The operators of the library, each made of graph operations and compiled through the pipeline."""

from tilewright.integrations.dlplib.operators.convolution import (
    bias_backward,
    bias_type,
    convolution_backward_data,
    convolution_backward_filter,
    convolution_forward,
    convolution_output,
)
from tilewright.integrations.dlplib.operators.elementwise import (
    activation_backward,
    activation_forward,
    concat,
    reshape,
    softmax_forward,
    transform,
    vector,
)
from tilewright.integrations.dlplib.operators.fully_connected import (
    fully_connected_backward_data,
    fully_connected_backward_filter,
    fully_connected_forward,
    matrix_multiply,
)
from tilewright.integrations.dlplib.operators.lstm import lstm_backward, lstm_forward
from tilewright.integrations.dlplib.operators.normalisation import (
    batch_norm_backward,
    batch_norm_forward,
    lrn_backward,
    lrn_forward,
)
from tilewright.integrations.dlplib.operators.pooling import (
    pooling_backward,
    pooling_forward,
    pooling_output,
)

__all__ = [
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
