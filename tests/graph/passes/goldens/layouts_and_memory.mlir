// passes: partition, fuse-pointwise, assign-layouts, eliminate-views, plan-memory; machine: cpu16
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x3x6x6xf32>):
  %w = graph.weight {symbol = "w"} : tensor<16x3x3x3xf32>
  %v = graph.weight {symbol = "v"} : tensor<8x16x1x1xf32>
  %1 = graph.conv %x, %w {node = "conv1"} : (tensor<1x3x6x6xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x4x4xf32>
  %2 = graph.max_pool %1 {kernel = [2, 2], strides = [2, 2], node = "pool1"} : (tensor<1x16x4x4xf32>) -> tensor<1x16x2x2xf32>
  %3 = graph.conv %2, %v {node = "conv2"} : (tensor<1x16x2x2xf32>, tensor<8x16x1x1xf32>) -> tensor<1x8x2x2xf32>
  %4 = graph.concat %2, %3 {axis = 1, node = "concat"} : (tensor<1x16x2x2xf32>, tensor<1x8x2x2xf32>) -> tensor<1x24x2x2xf32>
  %5 = graph.relu %4 {node = "relu"} : (tensor<1x24x2x2xf32>) -> tensor<1x24x2x2xf32>
  %6 = graph.reshape %5 {shape = [1, 96], node = "flat"} : (tensor<1x24x2x2xf32>) -> tensor<1x96xf32>
  graph.output %6 : tensor<1x96xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"], placements = [["activations", 1024 : i64, [108 : i64, 36 : i64, 6 : i64, 1 : i64]]], arenas = [["activations", 1536 : i64], ["weights", 2752 : i64]]} {
  ^bb0(%x: tensor<1x3x6x6xf32>):
    %w = graph.weight {symbol = "w", placement = ["weights", 0 : i64, [432 : i64, 144 : i64, 48 : i64, 16 : i64, 1 : i64]]} : tensor<16x3x3x3xf32, "OIHW16o">
    %0 = graph.kernel "k0_conv1" (%x, %w) : (tensor<1x3x6x6xf32>, tensor<16x3x3x3xf32, "OIHW16o">) -> tensor<1x16x4x4xf32, "NCHW16c"> attributes {engine = "accelerator", placement = ["activations", 0 : i64, [256 : i64, 256 : i64, 64 : i64, 16 : i64, 1 : i64]]} {
    ^bb0(%x_1: tensor<1x3x6x6xf32>, %w_1: tensor<16x3x3x3xf32, "OIHW16o">):
      %1 = graph.conv %x_1, %w_1 {node = "conv1"} : (tensor<1x3x6x6xf32>, tensor<16x3x3x3xf32, "OIHW16o">) -> tensor<1x16x4x4xf32, "NCHW16c">
      graph.yield %1 : tensor<1x16x4x4xf32, "NCHW16c">
    }
    %2 = graph.kernel "k1_pool1" (%0) : (tensor<1x16x4x4xf32, "NCHW16c">) -> tensor<1x16x2x2xf32, "NCHW16c"> attributes {engine = "accelerator", placement = ["activations", 1024 : i64, [128 : i64, 64 : i64, 32 : i64, 16 : i64, 1 : i64]]} {
    ^bb0(%3: tensor<1x16x4x4xf32, "NCHW16c">):
      %4 = graph.max_pool %3 {kernel = [2 : i64, 2 : i64], strides = [2 : i64, 2 : i64], node = "pool1"} : (tensor<1x16x4x4xf32, "NCHW16c">) -> tensor<1x16x2x2xf32, "NCHW16c">
      graph.yield %4 : tensor<1x16x2x2xf32, "NCHW16c">
    }
    %v = graph.weight {symbol = "v", placement = ["weights", 1728 : i64, [256 : i64, 256 : i64, 256 : i64, 256 : i64, 16 : i64, 1 : i64]]} : tensor<8x16x1x1xf32, "OIHW16i16o">
    %5 = graph.kernel "k2_conv2" (%2, %v) : (tensor<1x16x2x2xf32, "NCHW16c">, tensor<8x16x1x1xf32, "OIHW16i16o">) -> tensor<1x8x2x2xf32, "NCHW16c"> attributes {engine = "accelerator", placement = ["activations", 1280 : i64, [128 : i64, 64 : i64, 32 : i64, 16 : i64, 1 : i64]]} {
    ^bb0(%6: tensor<1x16x2x2xf32, "NCHW16c">, %v_1: tensor<8x16x1x1xf32, "OIHW16i16o">):
      %7 = graph.conv %6, %v_1 {node = "conv2"} : (tensor<1x16x2x2xf32, "NCHW16c">, tensor<8x16x1x1xf32, "OIHW16i16o">) -> tensor<1x8x2x2xf32, "NCHW16c">
      graph.yield %7 : tensor<1x8x2x2xf32, "NCHW16c">
    }
    %8 = graph.concat %2, %5 {axis = 1 : i64, node = "concat", placement = ["activations", 1024 : i64, [128 : i64, 64 : i64, 32 : i64, 16 : i64, 1 : i64]]} : (tensor<1x16x2x2xf32, "NCHW16c">, tensor<1x8x2x2xf32, "NCHW16c">) -> tensor<1x24x2x2xf32, "NCHW16c">
    %9 = graph.kernel "k3_relu" (%8) : (tensor<1x24x2x2xf32, "NCHW16c">) -> tensor<1x24x2x2xf32, "NCHW16c"> attributes {engine = "accelerator", placement = ["activations", 1024 : i64, [128 : i64, 64 : i64, 32 : i64, 16 : i64, 1 : i64]]} {
    ^bb0(%10: tensor<1x24x2x2xf32, "NCHW16c">):
      %11 = graph.relu %10 {node = "relu"} : (tensor<1x24x2x2xf32, "NCHW16c">) -> tensor<1x24x2x2xf32, "NCHW16c">
      graph.yield %11 : tensor<1x24x2x2xf32, "NCHW16c">
    }
    %12 = graph.kernel "k4_copy_k3_relu" (%9) : (tensor<1x24x2x2xf32, "NCHW16c">) -> tensor<1x24x2x2xf32> attributes {engine = "accelerator", placement = ["activations", 0 : i64, [96 : i64, 4 : i64, 2 : i64, 1 : i64]]} {
    ^bb0(%13: tensor<1x24x2x2xf32, "NCHW16c">):
      %14 = graph.convert_layout %13 : (tensor<1x24x2x2xf32, "NCHW16c">) -> tensor<1x24x2x2xf32>
      graph.yield %14 : tensor<1x24x2x2xf32>
    }
    %15 = graph.reshape %12 {shape = [1 : i64, 96 : i64], node = "flat", placement = ["activations", 0 : i64, [96 : i64, 1 : i64]]} : (tensor<1x24x2x2xf32>) -> tensor<1x96xf32>
    graph.output %15 : tensor<1x96xf32>
  }
}
