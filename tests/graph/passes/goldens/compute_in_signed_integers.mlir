// passes: compute-in-integers; machine: bytes
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x3x8x8xf32>):
  %sx = graph.weight {symbol = "sx"} : tensor<f32>
  %zx = graph.weight {symbol = "zx"} : tensor<ui8>
  %w = graph.weight {symbol = "w"} : tensor<4x3x3x3xi8>
  %sw = graph.weight {symbol = "sw"} : tensor<4x1x1x1xf32>
  %zw = graph.weight {symbol = "zw"} : tensor<i8>
  %sy = graph.weight {symbol = "sy"} : tensor<f32>
  %zy = graph.weight {symbol = "zy"} : tensor<ui8>
  %0 = graph.quantise_linear %x, %sx, %zx : (tensor<1x3x8x8xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x3x8x8xui8>
  %1 = graph.dequantise_linear %0, %sx, %zx : (tensor<1x3x8x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x3x8x8xf32>
  %2 = graph.dequantise_linear %w, %sw, %zw : (tensor<4x3x3x3xi8>, tensor<4x1x1x1xf32>, tensor<i8>) -> tensor<4x3x3x3xf32>
  %3 = graph.conv %1, %2 {node = "conv", pads = [1, 1, 1, 1]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  %4 = graph.relu %3 : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %5 = graph.quantise_linear %4, %sy, %zy {node = "quantised"} : (tensor<1x4x8x8xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x4x8x8xui8>
  %y = graph.dequantise_linear %5, %sy, %zy : (tensor<1x4x8x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x4x8x8xf32>
  graph.output %y : tensor<1x4x8x8xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x3x8x8xf32>):
    %sx = graph.weight {symbol = "sx"} : tensor<f32>
    %sy = graph.weight {symbol = "sy"} : tensor<f32>
    %zero.7 = graph.weight {symbol = "zero.7"} : tensor<i8>
    %0 = graph.quantise_linear %x, %sx, %zero.7 : (tensor<1x3x8x8xf32>, tensor<f32>, tensor<i8>) -> tensor<1x3x8x8xi8>
    %quantised = graph.pad %0 {pads = [0 : i64, 0 : i64, 1 : i64, 1 : i64, 0 : i64, 0 : i64, 1 : i64, 1 : i64], value = -1.280000e+02 : f64, node = "quantised"} : (tensor<1x3x8x8xi8>) -> tensor<1x3x10x10xi8>
    %conv_weight.11 = graph.weight {symbol = "conv.weight.11"} : tensor<4x3x3x3xi8>
    %conv_bias.12 = graph.weight {symbol = "conv.bias.12"} : tensor<4xi32>
    %conv = graph.conv %quantised, %conv_weight.11, %conv_bias.12 {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "conv"} : (tensor<1x3x10x10xi8>, tensor<4x3x3x3xi8>, tensor<4xi32>) -> tensor<1x4x8x8xi32>
    %conv_factor.13 = graph.weight {symbol = "conv.factor.13"} : tensor<1x4x1x1xf32>
    %conv_1 = graph.requantise_linear %conv, %conv_factor.13 {zero = -127 : i64, to = "int8", minimum = -127 : i64, maximum = 127 : i64, node = "conv", merged = ["quantised"]} : (tensor<1x4x8x8xi32>, tensor<1x4x1x1xf32>) -> tensor<1x4x8x8xi8>
    %zero.10 = graph.weight {symbol = "zero.10"} : tensor<i8>
    %y = graph.dequantise_linear %conv_1, %sy, %zero.10 : (tensor<1x4x8x8xi8>, tensor<f32>, tensor<i8>) -> tensor<1x4x8x8xf32>
    graph.output %y : tensor<1x4x8x8xf32>
  }
}
