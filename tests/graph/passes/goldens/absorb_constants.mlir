// passes: absorb-constants; machine: cpu16
graph.network "net" attributes {input_names = ["h", "x", "z"], output_names = ["y"]} {
^bb0(%h: tensor<1x4xf32>, %x: tensor<3x1x4xf32>, %z: tensor<4xf32>):
  %k = graph.weight {symbol = "k"} : tensor<4xf32>
  %y = graph.loop (%h, %x, %k, %z) : (tensor<1x4xf32>, tensor<3x1x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> attributes {rounds = 3, carried = 1, axes = [0], backwards = [false]} {
  ^bb1(%state: tensor<1x4xf32>, %part: tensor<1x4xf32>, %constant: tensor<4xf32>, %given: tensor<4xf32>):
    %a = graph.mul %state, %constant {node = "scaled"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
    %b = graph.add %a, %part {node = "sum"} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
    %c = graph.add %b, %given {node = "moved"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
    graph.yield %c : tensor<1x4xf32>
  }
  graph.output %y : tensor<4xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["h", "x", "z"], output_names = ["y"]} {
  ^bb0(%h: tensor<1x4xf32>, %x: tensor<3x1x4xf32>, %z: tensor<4xf32>):
    %k = graph.weight {symbol = "k"} : tensor<4xf32>
    %y = graph.loop(%h, %x, %z) : (tensor<1x4xf32>, tensor<3x1x4xf32>, tensor<4xf32>) -> tensor<4xf32> attributes {rounds = 3 : i64, carried = 1 : i64, axes = [0 : i64], backwards = [false]} {
    ^bb0(%state: tensor<1x4xf32>, %part: tensor<1x4xf32>, %given: tensor<4xf32>):
      %k_1 = graph.weight {symbol = "k"} : tensor<4xf32>
      %a = graph.mul %state, %k_1 {node = "scaled"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
      %b = graph.add %a, %part {node = "sum"} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
      %c = graph.add %b, %given {node = "moved"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
      graph.yield %c : tensor<1x4xf32>
    }
    graph.output %y : tensor<4xf32>
  }
}
