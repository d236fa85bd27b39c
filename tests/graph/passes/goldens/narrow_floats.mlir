// passes: partition, fuse-pointwise, narrow-floats; machine: half
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
    %0 = graph.kernel "k2_cast_x" (%x) : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf16> attributes {engine = "host", reason = "small reads and writes float16 only"} {
    ^bb0(%x_1: tensor<1x3x6x6xf32>):
      %1 = graph.cast %x_1 {to = "float16", saturate = true} : (tensor<1x3x6x6xf32>) -> tensor<1x3x6x6xf16>
      graph.yield %1 : tensor<1x3x6x6xf16>
    }
    %w.1 = graph.weight {symbol = "w.1"} : tensor<4x3x3x3xf16>
    %2 = graph.kernel "k3_cast_r" (%r) : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf16> attributes {engine = "host", reason = "small reads and writes float16 only"} {
    ^bb0(%r_1: tensor<1x4x4x4xf32>):
      %3 = graph.cast %r_1 {to = "float16", saturate = true} : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf16>
      graph.yield %3 : tensor<1x4x4x4xf16>
    }
    %relu = graph.kernel "k0_conv1" (%0, %w.1, %2) : (tensor<1x3x6x6xf16>, tensor<4x3x3x3xf16>, tensor<1x4x4x4xf16>) -> tensor<1x4x4x4xf16> attributes {engine = "accelerator"} {
    ^bb0(%4: tensor<1x3x6x6xf16>, %w.1_1: tensor<4x3x3x3xf16>, %5: tensor<1x4x4x4xf16>):
      %conv1 = graph.conv %4, %w.1_1 {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, node = "conv1"} : (tensor<1x3x6x6xf16>, tensor<4x3x3x3xf16>) -> tensor<1x4x4x4xf32>
      %sum = graph.add %5, %conv1 {node = "sum"} : (tensor<1x4x4x4xf16>, tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      %relu_1 = graph.relu %sum {node = "relu"} : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
      %relu_2 = graph.cast %relu_1 {to = "float16", saturate = true, node = "relu"} : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf16>
      graph.yield %relu_2 : tensor<1x4x4x4xf16>
    }
    %6 = graph.kernel "k4_cast_relu" (%relu) : (tensor<1x4x4x4xf16>) -> tensor<1x4x4x4xf32> attributes {engine = "host", reason = "small reads and writes float16 only"} {
    ^bb0(%relu_3: tensor<1x4x4x4xf16>):
      %7 = graph.cast %relu_3 {to = "float32"} : (tensor<1x4x4x4xf16>) -> tensor<1x4x4x4xf32>
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
