// passes: equalise; machine: cpu16
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x2x4xf32>):
    %scale = graph.weight {symbol = "scale"} : tensor<4xf32>
    %shift = graph.weight {symbol = "shift"} : tensor<4xf32>
    %w = graph.weight {symbol = "w"} : tensor<4x3xf32>
    %v = graph.weight {symbol = "v"} : tensor<3x4xf32>
    %n = graph.layer_norm %x, %scale, %shift {epsilon = 1.0e-05, node = "n"} : (tensor<1x2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
    %p = graph.matmul %n, %w {node = "p"} : (tensor<1x2x4xf32>, tensor<4x3xf32>) -> tensor<1x2x3xf32>
    %g = graph.gelu %p {node = "g"} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    %y = graph.matmul %g, %v {node = "y"} : (tensor<1x2x3xf32>, tensor<3x4xf32>) -> tensor<1x2x4xf32>
    graph.output %y : tensor<1x2x4xf32>
  }
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x2x4xf32>):
    %n_equal.4 = graph.weight {symbol = "n.equal.4"} : tensor<4xf32>
    %n_equal.5 = graph.weight {symbol = "n.equal.5"} : tensor<4xf32>
    %n = graph.layer_norm %x, %n_equal.4, %n_equal.5 {epsilon = 1.000000e-05 : f64, node = "n"} : (tensor<1x2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x2x4xf32>
    %p_equal.6 = graph.weight {symbol = "p.equal.6"} : tensor<4x3xf32>
    %p = graph.matmul %n, %p_equal.6 {node = "p"} : (tensor<1x2x4xf32>, tensor<4x3xf32>) -> tensor<1x2x3xf32>
    %g = graph.gelu %p {node = "g"} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
    %y_equal.7 = graph.weight {symbol = "y.equal.7"} : tensor<3x4xf32>
    %y_inverse.8 = graph.weight {symbol = "y.inverse.8"} : tensor<1x1x3xf32>
    %0 = graph.mul %g, %y_inverse.8 : (tensor<1x2x3xf32>, tensor<1x1x3xf32>) -> tensor<1x2x3xf32>
    %y = graph.matmul %0, %y_equal.7 {node = "y"} : (tensor<1x2x3xf32>, tensor<3x4xf32>) -> tensor<1x2x4xf32>
    graph.output %y : tensor<1x2x4xf32>
  }
}
