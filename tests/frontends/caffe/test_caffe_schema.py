"""The schema has Caffe's field numbers and defaults, and works beside other pools."""

import pytest
from google.protobuf import descriptor_pool, text_format

from tilewright.frontends.caffe.net import TYPES_V1
from tilewright.frontends.caffe.schema import message_class

NUMBERS = {
    "NetParameter": "name 1 layers 2 input 3 input_dim 4 input_shape 8 layer 100",
    "LayerParameter": "name 1 type 2 bottom 3 top 4 loss_weight 5 param 6 blobs 7 include 8 "
    "exclude 9 phase 10 concat_param 104 convolution_param 106 dropout_param 108 eltwise_param 110 "
    "inner_product_param 117 lrn_param 118 pooling_param 121 relu_param 123 sigmoid_param 124 "
    "softmax_param 125 slice_param 126 tanh_param 127 prelu_param 131 reshape_param 133 "
    "flatten_param 135 batch_norm_param 139 scale_param 142 input_param 143",
    "V1LayerParameter": "bottom 2 top 3 name 4 type 5 blobs 6 concat_param 9 convolution_param 10 "
    "dropout_param 12 inner_product_param 17 lrn_param 18 pooling_param 19 eltwise_param 24 "
    "relu_param 30 slice_param 31",
    "BlobProto": "num 1 channels 2 height 3 width 4 data 5 diff 6 shape 7 double_data 8",
    "BlobShape": "dim 1",
    "ConvolutionParameter": "num_output 1 bias_term 2 pad 3 kernel_size 4 group 5 stride 6 pad_h 9 "
    "pad_w 10 kernel_h 11 kernel_w 12 stride_h 13 stride_w 14 axis 16 dilation 18",
    "PoolingParameter": "pool 1 kernel_size 2 stride 3 pad 4 kernel_h 5 kernel_w 6 stride_h 7 "
    "stride_w 8 pad_h 9 pad_w 10 global_pooling 12 round_mode 13",
    "InnerProductParameter": "num_output 1 bias_term 2 axis 5 transpose 6",
    "LRNParameter": "local_size 1 alpha 2 beta 3 norm_region 4 k 5",
    "BatchNormParameter": "use_global_stats 1 eps 3",
    "ScaleParameter": "axis 1 num_axes 2 bias_term 4",
    "EltwiseParameter": "operation 1 coeff 2",
    "ConcatParameter": "concat_dim 1 axis 2",
    "ReLUParameter": "negative_slope 1",
    "InputParameter": "shape 1",
}

TYPES = {
    "CONCAT": 3, "CONVOLUTION": 4, "DATA": 5, "DROPOUT": 6, "FLATTEN": 8, "INNER_PRODUCT": 14,
    "LRN": 15, "POOLING": 17, "RELU": 18, "SIGMOID": 19, "SOFTMAX": 20, "TANH": 23, "ELTWISE": 25,
}  # fmt: skip


@pytest.mark.parametrize("message", NUMBERS)
def test_field_numbers(message):
    words = NUMBERS[message].split()
    fields = message_class(message).DESCRIPTOR.fields_by_name
    for name, number in zip(words[::2], words[1::2], strict=True):
        assert fields[name].number == int(number), name


def test_types_of_the_older_form():
    kinds = message_class("V1LayerParameter").LayerType
    assert {name: kinds.Value(name) for name in TYPES} == TYPES
    assert set(TYPES_V1) == set(kinds.keys())


def test_defaults():
    layer = message_class("LayerParameter")()
    lrn = layer.lrn_param
    assert (lrn.local_size, lrn.alpha, lrn.beta, lrn.norm_region, lrn.k) == (5, 1, 0.75, 0, 1)
    assert layer.batch_norm_param.eps == pytest.approx(1e-5)
    assert layer.convolution_param.bias_term is layer.inner_product_param.bias_term is True
    assert layer.scale_param.bias_term is False
    assert layer.eltwise_param.operation == 1
    assert (layer.concat_param.axis, layer.inner_product_param.axis) == (1, 1)
    assert (layer.pooling_param.pool, layer.pooling_param.round_mode) == (0, 0)


def test_the_pool_is_our_own():
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tilewright.caffe.NetParameter")


def test_packing_and_wire_form():
    blob = message_class("BlobProto")(data=[1.0, 2.0])
    assert blob.SerializeToString() == b"\x2a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"
    shape = message_class("BlobShape")(dim=[3, 300])
    assert shape.SerializeToString() == b"\x0a\x03\x03\xac\x02"


def test_text_has_enums_of_one_name_in_several_messages():
    text = "layer { pooling_param { pool: MAX } eltwise_param { operation: MAX } }"
    layer = text_format.Parse(text, message_class("NetParameter")()).layer[0]
    assert (layer.pooling_param.pool, layer.eltwise_param.operation) == (0, 2)
