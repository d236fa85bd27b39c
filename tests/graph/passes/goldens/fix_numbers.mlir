// passes: partition, fuse-pointwise, fix-numbers; machine: small
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
  graph.network "net" attributes {input_names = ["x", "r"], output_names = ["y"], numbers = [["quantise", 13 : i64, -3.500000e+00 : f64, 3.000000e+00 : f64, ""], ["quantise_2", 13 : i64, -3.500000e+00 : f64, 3.000000e+00 : f64, ""], ["conv1", 27 : i64, -3.500000e+00 : f64, 3.000000e+00 : f64, "calibrated"], ["sum", 27 : i64, -3.500000e+00 : f64, 3.000000e+00 : f64, "calibrated"], ["relu", 27 : i64, -3.500000e+00 : f64, 3.000000e+00 : f64, "calibrated"], ["relu_requantise", 13 : i64, -3.500000e+00 : f64, 3.000000e+00 : f64, ""]]} {
  ^bb0(%x: tensor<1x3x6x6xf32>, %r: tensor<1x4x4x4xf32>):
    %0 = graph.kernel "k2_quantise_x" (%x) : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6x!tilewright.fixed<16, 13>> attributes {engine = "host", reason = "small computes in 16-bit fixed point only"} {
    ^bb0(%x_1: tensor<1x3x6x6xf32>):
      %1 = graph.quantise %x_1 : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6x!tilewright.fixed<16, 13>>
      graph.yield %1 : tensor<1x3x6x6x!tilewright.fixed<16, 13>>
    }
    %w = graph.weight {symbol = "w.1"} : tensor<4x3x3x3x!tilewright.fixed<16, 14>>
    %2 = graph.kernel "k3_quantise_r" (%r) : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4x!tilewright.fixed<16, 13>> attributes {engine = "host", reason = "small computes in 16-bit fixed point only"} {
    ^bb0(%r_1: tensor<1x4x4x4xf32>):
      %3 = graph.quantise %r_1 : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4x!tilewright.fixed<16, 13>>
      graph.yield %3 : tensor<1x4x4x4x!tilewright.fixed<16, 13>>
    }
    %relu = graph.kernel "k0_conv1" (%0, %w, %2) : (tensor<1x3x6x6x!tilewright.fixed<16, 13>>, tensor<4x3x3x3x!tilewright.fixed<16, 14>>, tensor<1x4x4x4x!tilewright.fixed<16, 13>>) -> tensor<1x4x4x4x!tilewright.fixed<16, 13>> attributes {engine = "accelerator"} {
    ^bb0(%4: tensor<1x3x6x6x!tilewright.fixed<16, 13>>, %w_1: tensor<4x3x3x3x!tilewright.fixed<16, 14>>, %5: tensor<1x4x4x4x!tilewright.fixed<16, 13>>):
      %conv1 = graph.conv %4, %w_1 {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "conv1"} : (tensor<1x3x6x6x!tilewright.fixed<16, 13>>, tensor<4x3x3x3x!tilewright.fixed<16, 14>>) -> tensor<1x4x4x4x!tilewright.fixed<32, 27>>
      %sum = graph.add %5, %conv1 {node = "sum"} : (tensor<1x4x4x4x!tilewright.fixed<16, 13>>, tensor<1x4x4x4x!tilewright.fixed<32, 27>>) -> tensor<1x4x4x4x!tilewright.fixed<32, 27>>
      %relu_1 = graph.relu %sum {node = "relu"} : (tensor<1x4x4x4x!tilewright.fixed<32, 27>>) -> tensor<1x4x4x4x!tilewright.fixed<32, 27>>
      %relu_2 = graph.requantise %relu_1 {node = "relu"} : (tensor<1x4x4x4x!tilewright.fixed<32, 27>>) -> tensor<1x4x4x4x!tilewright.fixed<16, 13>>
      graph.yield %relu_2 : tensor<1x4x4x4x!tilewright.fixed<16, 13>>
    }
    %6 = graph.kernel "k4_dequantise" (%relu) : (tensor<1x4x4x4x!tilewright.fixed<16, 13>>) -> tensor<1x4x4x4xf32> attributes {engine = "host", reason = "small computes in 16-bit fixed point only"} {
    ^bb0(%relu_3: tensor<1x4x4x4x!tilewright.fixed<16, 13>>):
      %7 = graph.dequantise %relu_3 : (tensor<1x4x4x4x!tilewright.fixed<16, 13>>) -> tensor<1x4x4x4xf32>
      graph.yield %7 : tensor<1x4x4x4xf32>
    }
    %8 = graph.kernel "k1_ratio" (%6, %r) : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> attributes {engine = "host", reason = "no primitive of small computes div (it has add, average_pool, clip, conv, depthwise_conv, leaky_relu, matmul, max_pool, mul, relu, sigmoid, softmax, sub) (replace the operation by one that `tilewright explain --operators` lists, or add a primitive to the machine)"} {
    ^bb0(%9: tensor<1x4x4x4xf32>, %r_2: tensor<1x4x4x4xf32>):
      %10 = graph.div %9, %r_2 {node = "ratio"} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      graph.yield %10 : tensor<1x4x4x4xf32>
    }
    graph.output %8 : tensor<1x4x4x4xf32>
  }
}
