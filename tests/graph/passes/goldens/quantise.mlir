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
    %scale.5 = graph.weight {symbol = "scale.5"} : tensor<f32>
    %zero.6 = graph.weight {symbol = "zero.6"} : tensor<i8>
    %x_1 = graph.quantise_linear %x, %scale.5, %zero.6 : (tensor<1x2x4xf32>, tensor<f32>, tensor<i8>) -> tensor<1x2x4xi8>
    %scale.7 = graph.weight {symbol = "scale.7"} : tensor<f32>
    %zero.8 = graph.weight {symbol = "zero.8"} : tensor<i8>
    %x_2 = graph.dequantise_linear %x_1, %scale.7, %zero.8 : (tensor<1x2x4xi8>, tensor<f32>, tensor<i8>) -> tensor<1x2x4xf32>
    %p_weight_3.9 = graph.weight {symbol = "p.weight.3.9"} : tensor<3x4xi8>
    %scale.10 = graph.weight {symbol = "scale.10"} : tensor<3x1xf32>
    %zero.11 = graph.weight {symbol = "zero.11"} : tensor<i8>
    %0 = graph.dequantise_linear %p_weight_3.9, %scale.10, %zero.11 : (tensor<3x4xi8>, tensor<3x1xf32>, tensor<i8>) -> tensor<3x4xf32>
    %p_bias_4.12 = graph.weight {symbol = "p.bias.4.12"} : tensor<3xi32>
    %scale.13 = graph.weight {symbol = "scale.13"} : tensor<3xf32>
    %zero.14 = graph.weight {symbol = "zero.14"} : tensor<i32>
    %1 = graph.dequantise_linear %p_bias_4.12, %scale.13, %zero.14 : (tensor<3xi32>, tensor<3xf32>, tensor<i32>) -> tensor<3xf32>
    %p = graph.matmul %x_2, %0, %1 {transpose_a = false, transpose_b = true, node = "p", merged = ["s"]} : (tensor<1x2x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<1x2x3xf32>
    %y = graph.softmax %p {axis = 2 : i64, node = "y"} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    graph.output %y : tensor<1x2x3xf32>
  }
}
