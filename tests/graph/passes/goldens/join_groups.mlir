// passes: join-groups, partition; machine: blocks
graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
^bb0(%x: tensor<1x64x9x9xf32>):
  %u = graph.weight {symbol = "u"} : tensor<32x8x3x3xf32>
  %v = graph.weight {symbol = "v"} : tensor<64x16x1x1xf32>
  %1 = graph.conv %x, %u {group = 8, node = "joined"} : (tensor<1x64x9x9xf32>, tensor<32x8x3x3xf32>) -> tensor<1x32x7x7xf32>
  %2 = graph.conv %x, %v {group = 4, node = "whole"} : (tensor<1x64x9x9xf32>, tensor<64x16x1x1xf32>) -> tensor<1x64x9x9xf32>
  graph.output %1, %2 : tensor<1x32x7x7xf32>, tensor<1x64x9x9xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
  ^bb0(%x: tensor<1x64x9x9xf32>):
    %v = graph.weight {symbol = "v"} : tensor<64x16x1x1xf32>
    %grouped.2 = graph.weight {symbol = "grouped.2"} : tensor<32x32x3x3xf32>
    %joined = graph.conv %x, %grouped.2 {strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 2 : i64, node = "joined", engine = "accelerator"} : (tensor<1x64x9x9xf32>, tensor<32x32x3x3xf32>) -> tensor<1x32x7x7xf32>
    %0 = graph.conv %x, %v {group = 4 : i64, node = "whole", engine = "accelerator"} : (tensor<1x64x9x9xf32>, tensor<64x16x1x1xf32>) -> tensor<1x64x9x9xf32>
    graph.output %joined, %0 : tensor<1x32x7x7xf32>, tensor<1x64x9x9xf32>
  }
}
