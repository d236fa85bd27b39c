// passes: separate-padding; machine: cpu16
graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
^bb0(%x: tensor<1x4x6x50xf32>):
  %u = graph.weight {symbol = "u"} : tensor<8x4x3x81xf32>
  %v = graph.weight {symbol = "v"} : tensor<8x4x1x33xf32>
  %1 = graph.conv %x, %u {pads = [1, 40, 1, 40], node = "wide"} : (tensor<1x4x6x50xf32>, tensor<8x4x3x81xf32>) -> tensor<1x8x6x50xf32>
  %2 = graph.conv %x, %v {pads = [0, 16, 0, 16], node = "narrow"} : (tensor<1x4x6x50xf32>, tensor<8x4x1x33xf32>) -> tensor<1x8x6x50xf32>
  graph.output %1, %2 : tensor<1x8x6x50xf32>, tensor<1x8x6x50xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
  ^bb0(%x: tensor<1x4x6x50xf32>):
    %u = graph.weight {symbol = "u"} : tensor<8x4x3x81xf32>
    %v = graph.weight {symbol = "v"} : tensor<8x4x1x33xf32>
    %wide = graph.pad %x {pads = [0 : i64, 0 : i64, 1 : i64, 40 : i64, 0 : i64, 0 : i64, 1 : i64, 40 : i64], value = 0.000000e+00 : f64, node = "wide"} : (tensor<1x4x6x50xf32>) -> tensor<1x4x8x130xf32>
    %wide_1 = graph.conv %wide, %u {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "wide"} : (tensor<1x4x8x130xf32>, tensor<8x4x3x81xf32>) -> tensor<1x8x6x50xf32>
    %0 = graph.conv %x, %v {pads = [0 : i64, 16 : i64, 0 : i64, 16 : i64], node = "narrow"} : (tensor<1x4x6x50xf32>, tensor<8x4x1x33xf32>) -> tensor<1x8x6x50xf32>
    graph.output %wide_1, %0 : tensor<1x8x6x50xf32>, tensor<1x8x6x50xf32>
  }
}
