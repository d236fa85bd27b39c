// passes: expand-blocks; machine: small
graph.network "net" attributes {input_names = ["x", "places"], output_names = ["y", "rows"]} {
^bb0(%x: tensor<1x3x32xf32>, %places: tensor<2xi32>):
  %codes = graph.weight {symbol = "codes"} : tensor<16x16xui8>
  %scales = graph.weight {symbol = "scales"} : tensor<16x1xf32>
  %0 = graph.block_round %x {block = 32} : (tensor<1x3x32xf32>) -> tensor<1x3x1x18xi32>
  %y = graph.block_matmul %0, %codes, %scales {bits = 4, block = 32, zero = 8} : (tensor<1x3x1x18xi32>, tensor<16x16xui8>, tensor<16x1xf32>) -> tensor<1x3x16xf32>
  %rows = graph.block_gather %codes, %scales, %places {bits = 4, block = 32, zero = 8} : (tensor<16x16xui8>, tensor<16x1xf32>, tensor<2xi32>) -> tensor<2x32xf32>
  graph.output %y, %rows : tensor<1x3x16xf32>, tensor<2x32xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x", "places"], output_names = ["y", "rows"]} {
  ^bb0(%x: tensor<1x3x32xf32>, %places: tensor<2xi32>):
    %weight.2 = graph.weight {symbol = "weight.2"} : tensor<32x16xf32>
    %y = graph.matmul %x, %weight.2 : (tensor<1x3x32xf32>, tensor<32x16xf32>) -> tensor<1x3x16xf32>
    %table.3 = graph.weight {symbol = "table.3"} : tensor<16x32xf32>
    %rows = graph.gather %table.3, %places {axis = 0 : i64} : (tensor<16x32xf32>, tensor<2xi32>) -> tensor<2x32xf32>
    graph.output %y, %rows : tensor<1x3x16xf32>, tensor<2x32xf32>
  }
}
