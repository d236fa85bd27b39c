// passes: partition, fuse-pointwise; machine: small
graph.network "net" attributes {input_names = ["x", "r"], output_names = ["y"]} {
^bb0(%x: tensor<1x3x6x6xf32>, %r: tensor<1x4x4x4xf32>):
  %w = graph.weight {symbol = "w"} : tensor<4x3x3x3xf32>
  %1 = graph.conv %x, %w {node = "conv1"} : (tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x4xf32>
  %2 = graph.add %r, %1 {node = "sum"} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  %3 = graph.relu %2 {node = "relu"} : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  %4 = graph.div %3, %r {node = "ratio"} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  graph.output %4 : tensor<1x4x4x4xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x", "r"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x3x6x6xf32>, %r: tensor<1x4x4x4xf32>):
    %w = graph.weight {symbol = "w"} : tensor<4x3x3x3xf32>
    %0 = graph.kernel "k0_conv1" (%x, %w, %r) : (tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> attributes {engine = "accelerator"} {
    ^bb0(%x_1: tensor<1x3x6x6xf32>, %w_1: tensor<4x3x3x3xf32>, %r_1: tensor<1x4x4x4xf32>):
      %1 = graph.conv %x_1, %w_1 {node = "conv1"} : (tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x4xf32>
      %2 = graph.add %r_1, %1 {node = "sum"} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      %3 = graph.relu %2 {node = "relu"} : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      graph.yield %3 : tensor<1x4x4x4xf32>
    }
    %4 = graph.kernel "k1_ratio" (%0, %r) : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> attributes {engine = "host", reason = "no primitive of small computes div (it has add, average_pool, clip, conv, depthwise_conv, leaky_relu, matmul, max_pool, mul, relu, sigmoid, softmax, sub) (replace the operation by one that `tilewright explain --operators` lists, or add a primitive to the machine)"} {
    ^bb0(%5: tensor<1x4x4x4xf32>, %r_2: tensor<1x4x4x4xf32>):
      %6 = graph.div %5, %r_2 {node = "ratio"} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      graph.yield %6 : tensor<1x4x4x4xf32>
    }
    graph.output %4 : tensor<1x4x4x4xf32>
  }
}
