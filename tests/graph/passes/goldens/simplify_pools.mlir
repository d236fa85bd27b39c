// passes: simplify; machine: cpu16
graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
^bb0(%x: tensor<1x3x8x8xf32>):
  %1 = graph.pad %x {pads = [0, 0, 1, 0, 0, 0, 0, 1]} : (tensor<1x3x8x8xf32>) -> tensor<1x3x9x9xf32>
  %2 = graph.average_pool %1 {kernel = [3, 3], strides = [2, 2], node = "pool"} : (tensor<1x3x9x9xf32>) -> tensor<1x3x4x4xf32>
  %3 = graph.reduce_mean %2 {axes = [-1, 2], keep_dims = false, node = "mean"} : (tensor<1x3x4x4xf32>) -> tensor<1x3xf32>
  %4 = graph.transpose %x {permutation = [0, 2, 3, 1]} : (tensor<1x3x8x8xf32>) -> tensor<1x8x8x3xf32>
  %5 = graph.transpose %4 {permutation = [0, 3, 1, 2]} : (tensor<1x8x8x3xf32>) -> tensor<1x3x8x8xf32>
  %6 = graph.clip %5 : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32>
  %7 = graph.relu %6 : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32>
  graph.output %3, %7 : tensor<1x3xf32>, tensor<1x3x8x8xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
  ^bb0(%x: tensor<1x3x8x8xf32>):
    %pool = graph.average_pool %x {kernel = [3 : i64, 3 : i64], strides = [2 : i64, 2 : i64], pads = [1 : i64, 0 : i64, 0 : i64, 1 : i64], counted = [1 : i64, 0 : i64, 0 : i64, 1 : i64], node = "pool"} : (tensor<1x3x8x8xf32>) -> tensor<1x3x4x4xf32>
    %mean = graph.average_pool %pool {kernel = [4 : i64, 4 : i64], node = "mean"} : (tensor<1x3x4x4xf32>) -> tensor<1x3x1x1xf32>
    %mean_1 = graph.reshape %mean {shape = [1 : i64, 3 : i64], node = "mean"} : (tensor<1x3x1x1xf32>) -> tensor<1x3xf32>
    %0 = graph.relu %x : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32>
    graph.output %mean_1, %0 : tensor<1x3xf32>, tensor<1x3x8x8xf32>
  }
}
