// passes: partition, fuse-pointwise, fuse-separable; machine: server
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x32x112x112xf32>):
  %v = graph.weight {symbol = "v"} : tensor<32x1x3x3xf32>
  %w = graph.weight {symbol = "w"} : tensor<16x32x1x1xf32>
  %b = graph.weight {symbol = "b"} : tensor<16xf32>
  %0 = graph.conv %x, %v {pads = [1, 1, 1, 1], group = 32, node = "a"} : (tensor<1x32x112x112xf32>, tensor<32x1x3x3xf32>) -> tensor<1x32x112x112xf32>
  %1 = graph.clip %0 {minimum = 0.0, maximum = 6.0, node = "c"} : (tensor<1x32x112x112xf32>) -> tensor<1x32x112x112xf32>
  %2 = graph.conv %1, %w, %b {node = "d"} : (tensor<1x32x112x112xf32>, tensor<16x32x1x1xf32>, tensor<16xf32>) -> tensor<1x16x112x112xf32>
  graph.output %2 : tensor<1x16x112x112xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x32x112x112xf32>):
    %v = graph.weight {symbol = "v"} : tensor<32x1x3x3xf32>
    %w = graph.weight {symbol = "w"} : tensor<16x32x1x1xf32>
    %b = graph.weight {symbol = "b"} : tensor<16xf32>
    %0 = graph.scratch : tensor<3584xf32>
    %no_bias.3 = graph.weight {symbol = "no_bias.3"} : tensor<32xf32>
    %1 = graph.kernel "k1_d" (%x, %v, %w, %0, %no_bias.3, %b) : (tensor<1x32x112x112xf32>, tensor<32x1x3x3xf32>, tensor<16x32x1x1xf32>, tensor<3584xf32>, tensor<32xf32>, tensor<16xf32>) -> tensor<1x16x112x112xf32> attributes {engine = "accelerator"} {
    ^bb0(%x_1: tensor<1x32x112x112xf32>, %v_1: tensor<32x1x3x3xf32>, %w_1: tensor<16x32x1x1xf32>, %2: tensor<3584xf32>, %no_bias.3_1: tensor<32xf32>, %b_1: tensor<16xf32>):
      %3 = graph.separable_conv %x_1, %v_1, %w_1, %2, %no_bias.3_1, %b_1 {strides = [1 : i64, 1 : i64], pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], between = "clip", minimum = 0.000000e+00 : f64, maximum = 6.000000e+00 : f64, node = "a", merged = ["c", "d"]} : (tensor<1x32x112x112xf32>, tensor<32x1x3x3xf32>, tensor<16x32x1x1xf32>, tensor<3584xf32>, tensor<32xf32>, tensor<16xf32>) -> tensor<1x16x112x112xf32>
      graph.yield %3 : tensor<1x16x112x112xf32>
    }
    graph.output %1 : tensor<1x16x112x112xf32>
  }
}
