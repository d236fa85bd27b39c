// passes: compress-weights; machine: cambricon
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<1x64x14x14x!tilewright.fixed<16, 8>>):
  %w = graph.weight {symbol = "w"} : tensor<32x64x3x3x!tilewright.fixed<16, 12>>
  %b = graph.weight {symbol = "b"} : tensor<32x!tilewright.fixed<32, 20>>
  %0 = graph.kernel "k0" (%x, %w, %b) : (tensor<1x64x14x14x!tilewright.fixed<16, 8>>, tensor<32x64x3x3x!tilewright.fixed<16, 12>>, tensor<32x!tilewright.fixed<32, 20>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>> attributes {engine = "accelerator"} {
  ^bb0(%1: tensor<1x64x14x14x!tilewright.fixed<16, 8>>, %2: tensor<32x64x3x3x!tilewright.fixed<16, 12>>, %3: tensor<32x!tilewright.fixed<32, 20>>):
    %4 = graph.conv %1, %2, %3 {pads = [1, 1, 1, 1], node = "a"} : (tensor<1x64x14x14x!tilewright.fixed<16, 8>>, tensor<32x64x3x3x!tilewright.fixed<16, 12>>, tensor<32x!tilewright.fixed<32, 20>>) -> tensor<1x32x14x14x!tilewright.fixed<32, 20>>
    %5 = graph.requantise %4 {node = "a"} : (tensor<1x32x14x14x!tilewright.fixed<32, 20>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>>
    graph.yield %5 : tensor<1x32x14x14x!tilewright.fixed<16, 8>>
  }
  %6 = graph.kernel "k1" (%0) : (tensor<1x32x14x14x!tilewright.fixed<16, 8>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>> attributes {engine = "accelerator"} {
  ^bb0(%7: tensor<1x32x14x14x!tilewright.fixed<16, 8>>):
    %8 = graph.relu %7 {node = "r"} : (tensor<1x32x14x14x!tilewright.fixed<16, 8>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>>
    graph.yield %8 : tensor<1x32x14x14x!tilewright.fixed<16, 8>>
  }
  graph.output %6 : tensor<1x32x14x14x!tilewright.fixed<16, 8>>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x64x14x14x!tilewright.fixed<16, 8>>):
    %b = graph.weight {symbol = "b"} : tensor<32x!tilewright.fixed<32, 20>>
    %streams.2 = graph.weight {symbol = "streams.2"} : tensor<2x1x9178x!tilewright.fixed<16, 12>>
    %0 = graph.kernel "k0" (%x, %streams.2, %b) : (tensor<1x64x14x14x!tilewright.fixed<16, 8>>, tensor<2x1x9178x!tilewright.fixed<16, 12>>, tensor<32x!tilewright.fixed<32, 20>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>> attributes {engine = "accelerator"} {
    ^bb0(%x_1: tensor<1x64x14x14x!tilewright.fixed<16, 8>>, %streams.2_1: tensor<2x1x9178x!tilewright.fixed<16, 12>>, %b_1: tensor<32x!tilewright.fixed<32, 20>>):
      %1 = graph.sparse_product %x_1, %streams.2_1, %b_1 {channels = 32 : i64, kernel = [3 : i64, 3 : i64], lanes = 16 : i64, stream_cycles = [1664 : i64, 1632 : i64, 1 : i64], kept = 12191 : i64, strides = [1 : i64, 1 : i64], pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], node = "a"} : (tensor<1x64x14x14x!tilewright.fixed<16, 8>>, tensor<2x1x9178x!tilewright.fixed<16, 12>>, tensor<32x!tilewright.fixed<32, 20>>) -> tensor<1x32x14x14x!tilewright.fixed<32, 20>>
      %2 = graph.requantise %1 {node = "a"} : (tensor<1x32x14x14x!tilewright.fixed<32, 20>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>>
      graph.yield %2 : tensor<1x32x14x14x!tilewright.fixed<16, 8>>
    }
    %3 = graph.kernel "k1" (%0) : (tensor<1x32x14x14x!tilewright.fixed<16, 8>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>> attributes {engine = "accelerator"} {
    ^bb0(%4: tensor<1x32x14x14x!tilewright.fixed<16, 8>>):
      %5 = graph.relu %4 {node = "r"} : (tensor<1x32x14x14x!tilewright.fixed<16, 8>>) -> tensor<1x32x14x14x!tilewright.fixed<16, 8>>
      graph.yield %5 : tensor<1x32x14x14x!tilewright.fixed<16, 8>>
    }
    graph.output %3 : tensor<1x32x14x14x!tilewright.fixed<16, 8>>
  }
}
