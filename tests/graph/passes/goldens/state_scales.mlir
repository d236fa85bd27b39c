// passes: partition, state-scales, fuse-pointwise; machine: mixed
graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
^bb0(%x: tensor<4x32xf32>):
  %sx = graph.weight {symbol = "sx"} : tensor<f32>
  %zx = graph.weight {symbol = "zx"} : tensor<i8>
  %w = graph.weight {symbol = "w"} : tensor<8x32xi8>
  %sy = graph.weight {symbol = "sy"} : tensor<1x8xf32>
  %zy = graph.weight {symbol = "zy"} : tensor<i32>
  %sc = graph.weight {symbol = "sc"} : tensor<8xf32>
  %0 = graph.quantise_linear %x, %sx, %zx : (tensor<4x32xf32>, tensor<f32>, tensor<i8>) -> tensor<4x32xi8>
  %1 = graph.matmul %0, %w {node = "product", transpose_b = true} : (tensor<4x32xi8>, tensor<8x32xi8>) -> tensor<4x8xi32>
  %2 = graph.dequantise_linear %1, %sy, %zy {node = "product"} : (tensor<4x8xi32>, tensor<1x8xf32>, tensor<i32>) -> tensor<4x8xf32>
  %3 = graph.softmax %2 {node = "scores"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = graph.quantise_linear %3, %sx, %zx : (tensor<4x8xf32>, tensor<f32>, tensor<i8>) -> tensor<4x8xi8>
  %z = graph.quantise_linear %3, %sc, %zx {node = "channels"} : (tensor<4x8xf32>, tensor<8xf32>, tensor<i8>) -> tensor<4x8xi8>
  graph.output %y, %z : tensor<4x8xi8>, tensor<4x8xi8>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
  ^bb0(%x: tensor<4x32xf32>):
    %zx = graph.weight {symbol = "zx"} : tensor<i8>
    %w = graph.weight {symbol = "w"} : tensor<8x32xi8>
    %sy = graph.weight {symbol = "sy"} : tensor<1x8xf32>
    %sc = graph.weight {symbol = "sc"} : tensor<8xf32>
    %0 = graph.kernel "k0_quantise_linear" (%x) : (tensor<4x32xf32>) -> tensor<4x32xi8> attributes {engine = "accelerator"} {
    ^bb0(%x_1: tensor<4x32xf32>):
      %1 = graph.quantise_linear %x_1 {scale = 1.1590055227279663 : f64, zero = 0 : i64, to = "int8"} : (tensor<4x32xf32>) -> tensor<4x32xi8>
      graph.yield %1 : tensor<4x32xi8>
    }
    %product = graph.kernel "k1_product" (%0, %w, %sy) : (tensor<4x32xi8>, tensor<8x32xi8>, tensor<1x8xf32>) -> tensor<4x8xf32> attributes {engine = "accelerator"} {
    ^bb0(%2: tensor<4x32xi8>, %w_1: tensor<8x32xi8>, %sy_1: tensor<1x8xf32>):
      %3 = graph.matmul %2, %w_1 {node = "product", transpose_b = true} : (tensor<4x32xi8>, tensor<8x32xi8>) -> tensor<4x8xi32>
      %product_1 = graph.dequantise_linear %3, %sy_1 {zero = 1 : i64, node = "product"} : (tensor<4x8xi32>, tensor<1x8xf32>) -> tensor<4x8xf32>
      graph.yield %product_1 : tensor<4x8xf32>
    }
    %4 = graph.kernel "k2_scores" (%product) : (tensor<4x8xf32>) -> tensor<4x8xf32> attributes {engine = "accelerator"} {
    ^bb0(%product_2: tensor<4x8xf32>):
      %5 = graph.softmax %product_2 {node = "scores"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
      graph.yield %5 : tensor<4x8xf32>
    }
    %y = graph.kernel "k3_quantise_linear" (%4) : (tensor<4x8xf32>) -> tensor<4x8xi8> attributes {engine = "accelerator"} {
    ^bb0(%6: tensor<4x8xf32>):
      %y_1 = graph.quantise_linear %6 {scale = 1.1590055227279663 : f64, zero = 0 : i64, to = "int8"} : (tensor<4x8xf32>) -> tensor<4x8xi8>
      graph.yield %y_1 : tensor<4x8xi8>
    }
    %z = graph.kernel "k4_channels" (%4, %sc, %zx) : (tensor<4x8xf32>, tensor<8xf32>, tensor<i8>) -> tensor<4x8xi8> attributes {engine = "host", reason = "its scale or zero point is computed, or there are several (instructions carry one)"} {
    ^bb0(%7: tensor<4x8xf32>, %sc_1: tensor<8xf32>, %zx_1: tensor<i8>):
      %z_1 = graph.quantise_linear %7, %sc_1, %zx_1 {node = "channels"} : (tensor<4x8xf32>, tensor<8xf32>, tensor<i8>) -> tensor<4x8xi8>
      graph.yield %z_1 : tensor<4x8xi8>
    }
    graph.output %y, %z : tensor<4x8xi8>, tensor<4x8xi8>
  }
}
