// passes: fuse-batch-norm; machine: small
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x3x8x8xf32>):
  %w = graph.weight {symbol = "w"} : tensor<4x3x3x3xf32>
  %s = graph.weight {symbol = "s"} : tensor<4xf32>
  %t = graph.weight {symbol = "t"} : tensor<4xf32>
  %m = graph.weight {symbol = "m"} : tensor<4xf32>
  %v = graph.weight {symbol = "v"} : tensor<4xf32>
  %1 = graph.conv %x, %w {node = "conv1", pads = [1, 1, 1, 1]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  %2 = graph.batch_norm %1, %s, %t, %m, %v {node = "bn1"} : (tensor<1x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  %3 = graph.relu %2 {node = "relu1"} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %4 = graph.batch_norm %3, %s, %t, %m, %v {node = "bn2"} : (tensor<1x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  graph.output %4 : tensor<1x4x8x8xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x3x8x8xf32>):
    %conv1_weight.5 = graph.weight {symbol = "conv1.weight.5"} : tensor<4x3x3x3xf32>
    %conv1_bias.6 = graph.weight {symbol = "conv1.bias.6"} : tensor<4xf32>
    %conv1 = graph.conv %x, %conv1_weight.5, %conv1_bias.6 {strides = [1 : i64, 1 : i64], pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "conv1", merged = ["bn1"]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
    %0 = graph.relu %conv1 {node = "relu1"} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
    %bn2_weight.7 = graph.weight {symbol = "bn2.weight.7"} : tensor<4x1x1x1xf32>
    %bn2_bias.8 = graph.weight {symbol = "bn2.bias.8"} : tensor<4xf32>
    %bn2 = graph.conv %0, %bn2_weight.7, %bn2_bias.8 {group = 4 : i64, node = "bn2"} : (tensor<1x4x8x8xf32>, tensor<4x1x1x1xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
    graph.output %bn2 : tensor<1x4x8x8xf32>
  }
}
