// passes: partition, subsample; machine: small
graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
^bb0(%x: tensor<1x3x6x6xf32>):
  %u = graph.weight {symbol = "u"} : tensor<4x3x3x3xf32>
  %v = graph.weight {symbol = "v"} : tensor<8x4x1x1xf32>
  %w = graph.weight {symbol = "w"} : tensor<2x4x1x1xf32>
  %1 = graph.conv %x, %u {node = "first"} : (tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x4xf32>
  %2 = graph.conv %1, %v {strides = [2, 2], node = "main"} : (tensor<1x4x4x4xf32>, tensor<8x4x1x1xf32>) -> tensor<1x8x2x2xf32>
  %3 = graph.conv %1, %w {strides = [2, 2], node = "shortcut"} : (tensor<1x4x4x4xf32>, tensor<2x4x1x1xf32>) -> tensor<1x2x2x2xf32>
  graph.output %2, %3 : tensor<1x8x2x2xf32>, tensor<1x2x2x2xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
  ^bb0(%x: tensor<1x3x6x6xf32>):
    %u = graph.weight {symbol = "u"} : tensor<4x3x3x3xf32>
    %v = graph.weight {symbol = "v"} : tensor<8x4x1x1xf32>
    %w = graph.weight {symbol = "w"} : tensor<2x4x1x1xf32>
    %0 = graph.conv %x, %u {node = "first", engine = "accelerator"} : (tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x4xf32>
    %1 = graph.slice %0 {starts = [0 : i64, 0 : i64], ends = [3 : i64, 3 : i64], steps = [2 : i64, 2 : i64], axes = [2 : i64, 3 : i64]} : (tensor<1x4x4x4xf32>) -> tensor<1x4x2x2xf32>
    %main_ = graph.conv %1, %v {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "main", engine = "accelerator"} : (tensor<1x4x2x2xf32>, tensor<8x4x1x1xf32>) -> tensor<1x8x2x2xf32>
    %shortcut = graph.conv %1, %w {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "shortcut", engine = "accelerator"} : (tensor<1x4x2x2xf32>, tensor<2x4x1x1xf32>) -> tensor<1x2x2x2xf32>
    graph.output %main_, %shortcut : tensor<1x8x2x2xf32>, tensor<1x2x2x2xf32>
  }
}
