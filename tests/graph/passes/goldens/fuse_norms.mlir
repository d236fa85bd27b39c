// passes: partition, fuse-pointwise, fuse-norms; machine: cpu16
graph.network "net" attributes {input_names = ["x", "r"], output_names = ["y"]} {
^bb0(%x: tensor<1x256x64xf32>, %r: tensor<1x256x64xf32>):
  %w = graph.weight {symbol = "w"} : tensor<64x64xf32>
  %b = graph.weight {symbol = "b"} : tensor<64xf32>
  %g = graph.weight {symbol = "g"} : tensor<64xf32>
  %0 = graph.matmul %x, %w, %b {node = "a"} : (tensor<1x256x64xf32>, tensor<64x64xf32>, tensor<64xf32>) -> tensor<1x256x64xf32>
  %1 = graph.add %0, %r {node = "b"} : (tensor<1x256x64xf32>, tensor<1x256x64xf32>) -> tensor<1x256x64xf32>
  %2 = graph.layer_norm %1, %g {centred = false, node = "c"} : (tensor<1x256x64xf32>, tensor<64xf32>) -> tensor<1x256x64xf32>
  graph.output %2 : tensor<1x256x64xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x", "r"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x256x64xf32>, %r: tensor<1x256x64xf32>):
    %w = graph.weight {symbol = "w"} : tensor<64x64xf32>
    %b = graph.weight {symbol = "b"} : tensor<64xf32>
    %g = graph.weight {symbol = "g"} : tensor<64xf32>
    %0 = graph.kernel "k0_a" (%x, %w, %b, %r, %g) : (tensor<1x256x64xf32>, tensor<64x64xf32>, tensor<64xf32>, tensor<1x256x64xf32>, tensor<64xf32>) -> tensor<1x256x64xf32> attributes {engine = "accelerator"} {
    ^bb0(%x_1: tensor<1x256x64xf32>, %w_1: tensor<64x64xf32>, %b_1: tensor<64xf32>, %r_1: tensor<1x256x64xf32>, %g_1: tensor<64xf32>):
      %1 = graph.matmul %x_1, %w_1, %b_1 {node = "a"} : (tensor<1x256x64xf32>, tensor<64x64xf32>, tensor<64xf32>) -> tensor<1x256x64xf32>
      %2 = graph.add %1, %r_1 {node = "b"} : (tensor<1x256x64xf32>, tensor<1x256x64xf32>) -> tensor<1x256x64xf32>
      %3 = graph.layer_norm %2, %g_1 {centred = false, node = "c"} : (tensor<1x256x64xf32>, tensor<64xf32>) -> tensor<1x256x64xf32>
      graph.yield %3 : tensor<1x256x64xf32>
    }
    graph.output %0 : tensor<1x256x64xf32>
  }
}
