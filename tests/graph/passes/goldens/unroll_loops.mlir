// passes: unroll-loops; machine: cpu16
graph.network "net" attributes {input_names = ["h", "x"], output_names = ["y", "all"]} {
^bb0(%h: tensor<1x4xf32>, %x: tensor<2x1x4xf32>):
  %loop = graph.loop (%h, %x) : (tensor<1x4xf32>, tensor<2x1x4xf32>) -> tensor<12xf32> attributes {rounds = 2, carried = 1, axes = [0], backwards = [true], stacked_backwards = [true], node = "loop"} {
  ^bb1(%state: tensor<1x4xf32>, %part: tensor<1x4xf32>):
    %k = graph.weight {symbol = "k"} : tensor<4xf32>
    %a = graph.mul %state, %k {node = "scaled"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
    %b = graph.add %a, %part {node = "sum"} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
    graph.yield %b, %a : tensor<1x4xf32>, tensor<1x4xf32>
  }
  %flat = graph.slice %loop {starts = [0], ends = [4], axes = [0], steps = [1]} : (tensor<12xf32>) -> tensor<4xf32>
  %y = graph.reshape %flat {shape = [1, 4]} : (tensor<4xf32>) -> tensor<1x4xf32>
  %rows = graph.slice %loop {starts = [4], ends = [12], axes = [0], steps = [1]} : (tensor<12xf32>) -> tensor<8xf32>
  %all = graph.reshape %rows {shape = [2, 1, 4]} : (tensor<8xf32>) -> tensor<2x1x4xf32>
  graph.output %y, %all : tensor<1x4xf32>, tensor<2x1x4xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["h", "x"], output_names = ["y", "all"]} {
  ^bb0(%h: tensor<1x4xf32>, %x: tensor<2x1x4xf32>):
    %k = graph.weight {symbol = "k"} : tensor<4xf32>
    %loop = graph.slice %x {starts = [1 : i64], ends = [2 : i64], axes = [0 : i64], steps = [1 : i64], node = "loop"} : (tensor<2x1x4xf32>) -> tensor<1x1x4xf32>
    %loop_1 = graph.reshape %loop {shape = [1 : i64, 4 : i64], node = "loop"} : (tensor<1x1x4xf32>) -> tensor<1x4xf32>
    %a = graph.mul %h, %k {node = "scaled"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
    %b = graph.add %a, %loop_1 {node = "sum"} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
    %loop_2 = graph.reshape %a {shape = [1 : i64, 1 : i64, 4 : i64], node = "loop"} : (tensor<1x4xf32>) -> tensor<1x1x4xf32>
    %loop_3 = graph.slice %x {starts = [0 : i64], ends = [1 : i64], axes = [0 : i64], steps = [1 : i64], node = "loop"} : (tensor<2x1x4xf32>) -> tensor<1x1x4xf32>
    %loop_4 = graph.reshape %loop_3 {shape = [1 : i64, 4 : i64], node = "loop"} : (tensor<1x1x4xf32>) -> tensor<1x4xf32>
    %a_1 = graph.mul %b, %k {node = "scaled"} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
    %b_1 = graph.add %a_1, %loop_4 {node = "sum"} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
    %loop_5 = graph.reshape %a_1 {shape = [1 : i64, 1 : i64, 4 : i64], node = "loop"} : (tensor<1x4xf32>) -> tensor<1x1x4xf32>
    %loop_6 = graph.concat %loop_5, %loop_2 {axis = 0 : i64, node = "loop"} : (tensor<1x1x4xf32>, tensor<1x1x4xf32>) -> tensor<2x1x4xf32>
    graph.output %b_1, %loop_6 : tensor<1x4xf32>, tensor<2x1x4xf32>
  }
}
