// passes: fold-constants, multiply-bytes; machine: cpu16
graph.network "net" attributes {input_names = ["x", "scale", "zero", "b"], output_names = ["y"]} {
^bb0(%x: tensor<1x3x8x8xui8>, %scale: tensor<f32>, %zero: tensor<ui8>, %b: tensor<1x4x1x1xi32>):
  %w = graph.weight {symbol = "w"} : tensor<4x3x3x3xi8>
  %0 = graph.cast %x {to = "int32"} : (tensor<1x3x8x8xui8>) -> tensor<1x3x8x8xi32>
  %1 = graph.cast %zero {to = "int32"} : (tensor<ui8>) -> tensor<i32>
  %2 = graph.sub %0, %1 : (tensor<1x3x8x8xi32>, tensor<i32>) -> tensor<1x3x8x8xi32>
  %3 = graph.cast %w {to = "int32"} : (tensor<4x3x3x3xi8>) -> tensor<4x3x3x3xi32>
  %4 = graph.conv %2, %3 {node = "conv", pads = [1, 1, 1, 1]} : (tensor<1x3x8x8xi32>, tensor<4x3x3x3xi32>) -> tensor<1x4x8x8xi32>
  %5 = graph.add %4, %b : (tensor<1x4x8x8xi32>, tensor<1x4x1x1xi32>) -> tensor<1x4x8x8xi32>
  %6 = graph.cast %5 {to = "float32"} : (tensor<1x4x8x8xi32>) -> tensor<1x4x8x8xf32>
  %y = graph.mul %6, %scale : (tensor<1x4x8x8xf32>, tensor<f32>) -> tensor<1x4x8x8xf32>
  graph.output %y : tensor<1x4x8x8xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x", "scale", "zero", "b"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x3x8x8xui8>, %scale: tensor<f32>, %zero: tensor<ui8>, %b: tensor<1x4x1x1xi32>):
    %0 = graph.reshape %b {shape = [4 : i64]} : (tensor<1x4x1x1xi32>) -> tensor<4xi32>
    %1 = graph.pad %x, %zero {pads = [0 : i64, 0 : i64, 1 : i64, 1 : i64, 0 : i64, 0 : i64, 1 : i64, 1 : i64]} : (tensor<1x3x8x8xui8>, tensor<ui8>) -> tensor<1x3x10x10xui8>
    %conv_weight.2 = graph.weight {symbol = "conv.weight.2"} : tensor<4x3x3x3xi8>
    %conv_sums.3 = graph.weight {symbol = "conv.sums.3"} : tensor<4xi32>
    %2 = graph.cast %zero {to = "int32"} : (tensor<ui8>) -> tensor<i32>
    %3 = graph.mul %conv_sums.3, %2 : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
    %4 = graph.sub %0, %3 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %conv = graph.conv %1, %conv_weight.2, %4 {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "conv"} : (tensor<1x3x10x10xui8>, tensor<4x3x3x3xi8>, tensor<4xi32>) -> tensor<1x4x8x8xi32>
    %y = graph.dequantise_linear %conv, %scale {zero = 0 : i64} : (tensor<1x4x8x8xi32>, tensor<f32>) -> tensor<1x4x8x8xf32>
    graph.output %y : tensor<1x4x8x8xf32>
  }
}
