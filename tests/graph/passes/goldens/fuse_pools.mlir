// passes: partition, fuse-pointwise, choose-methods, fuse-pools; machine: cpu16
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x64x28x28xf32>):
  %w = graph.weight {symbol = "w"} : tensor<64x64x3x3xf32>
  %b = graph.weight {symbol = "b"} : tensor<64xf32>
  %0 = graph.conv %x, %w, %b {pads = [1, 1, 1, 1], node = "a"} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>, tensor<64xf32>) -> tensor<1x64x28x28xf32>
  %1 = graph.relu %0 {node = "b"} : (tensor<1x64x28x28xf32>) -> tensor<1x64x28x28xf32>
  %2 = graph.max_pool %1 {kernel = [2, 2], strides = [2, 2], node = "c"} : (tensor<1x64x28x28xf32>) -> tensor<1x64x14x14xf32>
  graph.output %2 : tensor<1x64x14x14xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x64x28x28xf32>):
    %w = graph.weight {symbol = "w"} : tensor<64x64x3x3xf32>
    %b = graph.weight {symbol = "b"} : tensor<64xf32>
    %0 = graph.scratch : tensor<146688xf32>
    %1 = graph.kernel "k0_a" (%x, %w, %0, %b) : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>, tensor<146688xf32>, tensor<64xf32>) -> tensor<1x64x14x14xf32> attributes {engine = "accelerator"} {
    ^bb0(%x_1: tensor<1x64x28x28xf32>, %w_1: tensor<64x64x3x3xf32>, %2: tensor<146688xf32>, %b_1: tensor<64xf32>):
      %3 = graph.winograd_conv %x_1, %w_1, %2, %b_1 {pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64], tile = 6 : i64, taps = 3 : i64, group = 1 : i64, node = "a"} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>, tensor<146688xf32>, tensor<64xf32>) -> tensor<1x64x28x28xf32>
      %4 = graph.relu %3 {node = "b"} : (tensor<1x64x28x28xf32>) -> tensor<1x64x28x28xf32>
      %5 = graph.max_pool %4 {kernel = [2 : i64, 2 : i64], strides = [2 : i64, 2 : i64], node = "c"} : (tensor<1x64x28x28xf32>) -> tensor<1x64x14x14xf32>
      graph.yield %5 : tensor<1x64x14x14xf32>
    }
    graph.output %1 : tensor<1x64x14x14xf32>
  }
}
