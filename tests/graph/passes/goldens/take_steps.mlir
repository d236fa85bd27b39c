// passes: take-steps; machine: cpu16
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<2x4xf32>):
  %m = graph.weight {symbol = "m"} : tensor<6x4xf32>
  %turned = graph.weight {symbol = "turned"} : tensor<4x6xf32>
  %y = graph.resample(%x, %m, %turned) : (tensor<2x4xf32>, tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32> attributes {axis = 1, written = 2, node = "resize"} {
  ^bb1(%a: tensor<2x4xf32>, %b: tensor<6x4xf32>, %c: tensor<4x6xf32>):
    %d = graph.matmul %a, %c {node = "resize"} : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
    graph.yield %d : tensor<2x6xf32>
  }
  graph.output %y : tensor<2x6xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<2x4xf32>):
    %turned = graph.weight {symbol = "turned"} : tensor<4x6xf32>
    %d = graph.matmul %x, %turned {node = "resize"} : (tensor<2x4xf32>, tensor<4x6xf32>) -> tensor<2x6xf32>
    graph.output %d : tensor<2x6xf32>
  }
}
