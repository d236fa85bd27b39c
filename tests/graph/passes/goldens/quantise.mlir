// passes: simplify, quantise; machine: cpu16
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x2x4xf32>):
    %w = graph.weight {symbol = "w"} : tensor<4x3xf32>
    %b = graph.weight {symbol = "b"} : tensor<1x1x3xf32>
    %p = graph.matmul %x, %w {node = "p"} : (tensor<1x2x4xf32>, tensor<4x3xf32>) -> tensor<1x2x3xf32>
    %s = graph.add %p, %b {node = "s"} : (tensor<1x2x3xf32>, tensor<1x1x3xf32>) -> tensor<1x2x3xf32>
    %y = graph.softmax %s {axis = 2, node = "y"} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    graph.output %y : tensor<1x2x3xf32>
  }
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x2x4xf32>):
    %scale.3 = graph.weight {symbol = "scale.3"} : tensor<f32>
    %zero.4 = graph.weight {symbol = "zero.4"} : tensor<i8>
    %x_1 = graph.quantise_linear %x, %scale.3, %zero.4 : (tensor<1x2x4xf32>, tensor<f32>, tensor<i8>) -> tensor<1x2x4xi8>
    %scale.5 = graph.weight {symbol = "scale.5"} : tensor<f32>
    %zero.6 = graph.weight {symbol = "zero.6"} : tensor<i8>
    %x_2 = graph.dequantise_linear %x_1, %scale.5, %zero.6 : (tensor<1x2x4xi8>, tensor<f32>, tensor<i8>) -> tensor<1x2x4xf32>
    %w.7 = graph.weight {symbol = "w.7"} : tensor<4x3xi8>
    %scale.8 = graph.weight {symbol = "scale.8"} : tensor<1x3xf32>
    %zero.9 = graph.weight {symbol = "zero.9"} : tensor<i8>
    %0 = graph.dequantise_linear %w.7, %scale.8, %zero.9 : (tensor<4x3xi8>, tensor<1x3xf32>, tensor<i8>) -> tensor<4x3xf32>
    %s_bias_2.10 = graph.weight {symbol = "s.bias.2.10"} : tensor<3xi32>
    %scale.11 = graph.weight {symbol = "scale.11"} : tensor<3xf32>
    %zero.12 = graph.weight {symbol = "zero.12"} : tensor<i32>
    %1 = graph.dequantise_linear %s_bias_2.10, %scale.11, %zero.12 : (tensor<3xi32>, tensor<3xf32>, tensor<i32>) -> tensor<3xf32>
    %p = graph.matmul %x_2, %0, %1 {transpose_a = false, transpose_b = false, node = "p", merged = ["s"]} : (tensor<1x2x4xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<1x2x3xf32>
    %y = graph.softmax %p {axis = 2 : i64, node = "y"} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    graph.output %y : tensor<1x2x3xf32>
  }
}
