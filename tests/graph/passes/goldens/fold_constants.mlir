// passes: fold-constants; machine: cpu16
graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
^bb0(%x: tensor<2x4xf32>):
  %a = graph.weight {symbol = "a"} : tensor<4xf32>
  %b = graph.exp %a {node = "scale"} : (tensor<4xf32>) -> tensor<4xf32>
  %unused = graph.neg %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = graph.mul %x, %b {node = "scaled"} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  graph.output %y : tensor<2x4xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y"]} {
  ^bb0(%x: tensor<2x4xf32>):
    %scale.1 = graph.weight {symbol = "scale.1"} : tensor<4xf32>
    %y = graph.mul %x, %scale.1 {node = "scaled"} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
    graph.output %y : tensor<2x4xf32>
  }
}
