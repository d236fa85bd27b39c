// passes: simplify; machine: small
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x3x8x8xf32>):
  %w = graph.weight {symbol = "w"} : tensor<4x3x3x3xf32>
  %s = graph.weight {symbol = "s"} : tensor<4x1x1xf32>
  %f = graph.weight {symbol = "f"} : tensor<256x10xf32>
  %b = graph.weight {symbol = "b"} : tensor<10xf32>
  %g = graph.weight {symbol = "g"} : tensor<10x5xf32>
  %1 = graph.pad %x {pads = [0, 0, 1, 1, 0, 0, 1, 1], node = "pad"} : (tensor<1x3x8x8xf32>) -> tensor<1x3x10x10xf32>
  %2 = graph.conv %1, %w {node = "conv1"} : (tensor<1x3x10x10xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  %3 = graph.mul %2, %s {node = "scale"} : (tensor<1x4x8x8xf32>, tensor<4x1x1xf32>) -> tensor<1x4x8x8xf32>
  %4 = graph.reshape %3 {shape = [4, 64], node = "r1"} : (tensor<1x4x8x8xf32>) -> tensor<4x64xf32>
  %5 = graph.reshape %4 {shape = [1, 256], node = "r2"} : (tensor<4x64xf32>) -> tensor<1x256xf32>
  %6 = graph.matmul %5, %f {node = "fc1"} : (tensor<1x256xf32>, tensor<256x10xf32>) -> tensor<1x10xf32>
  %7 = graph.add %6, %b {node = "bias1"} : (tensor<1x10xf32>, tensor<10xf32>) -> tensor<1x10xf32>
  %8 = graph.relu %7 {node = "relu1"} : (tensor<1x10xf32>) -> tensor<1x10xf32>
  %9 = graph.matmul %8, %g {node = "fc2"} : (tensor<1x10xf32>, tensor<10x5xf32>) -> tensor<1x5xf32>
  graph.output %9 : tensor<1x5xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x3x8x8xf32>):
    %conv1_weight.9 = graph.weight {symbol = "conv1.weight.9"} : tensor<4x3x3x3xf32>
    %conv1_bias.10 = graph.weight {symbol = "conv1.bias.10"} : tensor<4xf32>
    %conv1 = graph.conv %x, %conv1_weight.9, %conv1_bias.10 {strides = [1 : i64, 1 : i64], pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "conv1", merged = ["scale"]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
    %fc1_weight.13 = graph.weight {symbol = "fc1.weight.13"} : tensor<10x4x8x8xf32>
    %fc1_bias.14 = graph.weight {symbol = "fc1.bias.14"} : tensor<10xf32>
    %fc1 = graph.conv %conv1, %fc1_weight.13, %fc1_bias.14 {node = "fc1", merged = ["bias1"]} : (tensor<1x4x8x8xf32>, tensor<10x4x8x8xf32>, tensor<10xf32>) -> tensor<1x10x1x1xf32>
    %relu1 = graph.relu %fc1 {node = "relu1"} : (tensor<1x10x1x1xf32>) -> tensor<1x10x1x1xf32>
    %fc1_1 = graph.reshape %relu1 {shape = [1 : i64, 10 : i64], node = "fc1", merged = ["bias1", "relu1"]} : (tensor<1x10x1x1xf32>) -> tensor<1x10xf32>
    %fc2_weight.8 = graph.weight {symbol = "fc2.weight.8"} : tensor<5x10xf32>
    %fc2 = graph.matmul %fc1_1, %fc2_weight.8 {transpose_a = false, transpose_b = true, node = "fc2"} : (tensor<1x10xf32>, tensor<5x10xf32>) -> tensor<1x5xf32>
    graph.output %fc2 : tensor<1x5xf32>
  }
}
