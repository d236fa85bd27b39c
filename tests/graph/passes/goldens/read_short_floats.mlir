// passes: read-short-floats; machine: pairs
graph.network "net" attributes {input_names = ["x", "s", "i"], output_names = ["y", "z", "t", "u"]} {
^bb0(%x: tensor<1x32x6x6xbf16>, %s: tensor<1x32x6x6xf16>, %i: tensor<3xi64>):
  %w = graph.weight {symbol = "w"} : tensor<32x32x1x1xbf16>
  %b = graph.weight {symbol = "b"} : tensor<32xbf16>
  %v = graph.weight {symbol = "v"} : tensor<32x32x1x1xf16>
  %c = graph.weight {symbol = "c"} : tensor<1x32x1x1xf16>
  %e = graph.weight {symbol = "e"} : tensor<9x4xf16>
  %wide = graph.cast %x {to = "float32"} : (tensor<1x32x6x6xbf16>) -> tensor<1x32x6x6xf32>
  %half = graph.cast %s {to = "float32"} : (tensor<1x32x6x6xf16>) -> tensor<1x32x6x6xf32>
  %ww = graph.cast %w {to = "float32"} : (tensor<32x32x1x1xbf16>) -> tensor<32x32x1x1xf32>
  %wb = graph.cast %b {to = "float32"} : (tensor<32xbf16>) -> tensor<32xf32>
  %wv = graph.cast %v {to = "float32"} : (tensor<32x32x1x1xf16>) -> tensor<32x32x1x1xf32>
  %wc = graph.cast %c {to = "float32"} : (tensor<1x32x1x1xf16>) -> tensor<1x32x1x1xf32>
  %we = graph.cast %e {to = "float32"} : (tensor<9x4xf16>) -> tensor<9x4xf32>
  %1 = graph.conv %wide, %ww, %wb {node = "both"} : (tensor<1x32x6x6xf32>, tensor<32x32x1x1xf32>, tensor<32xf32>) -> tensor<1x32x6x6xf32>
  %2 = graph.add %1, %wide {node = "residual"} : (tensor<1x32x6x6xf32>, tensor<1x32x6x6xf32>) -> tensor<1x32x6x6xf32>
  %3 = graph.relu %wide {node = "relu"} : (tensor<1x32x6x6xf32>) -> tensor<1x32x6x6xf32>
  %4 = graph.conv %half, %wv {node = "weights alone"} : (tensor<1x32x6x6xf32>, tensor<32x32x1x1xf32>) -> tensor<1x32x6x6xf32>
  %5 = graph.mul %4, %wc {node = "scale"} : (tensor<1x32x6x6xf32>, tensor<1x32x1x1xf32>) -> tensor<1x32x6x6xf32>
  %6 = graph.gather %we, %i {axis = 0, node = "table"} : (tensor<9x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  graph.output %2, %3, %5, %6 : tensor<1x32x6x6xf32>, tensor<1x32x6x6xf32>, tensor<1x32x6x6xf32>, tensor<3x4xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x", "s", "i"], output_names = ["y", "z", "t", "u"]} {
  ^bb0(%x: tensor<1x32x6x6xbf16>, %s: tensor<1x32x6x6xf16>, %i: tensor<3xi64>):
    %w = graph.weight {symbol = "w"} : tensor<32x32x1x1xbf16>
    %b = graph.weight {symbol = "b"} : tensor<32xbf16>
    %v = graph.weight {symbol = "v"} : tensor<32x32x1x1xf16>
    %e = graph.weight {symbol = "e"} : tensor<9x4xf16>
    %wide = graph.cast %x {to = "float32"} : (tensor<1x32x6x6xbf16>) -> tensor<1x32x6x6xf32>
    %half = graph.cast %s {to = "float32"} : (tensor<1x32x6x6xf16>) -> tensor<1x32x6x6xf32>
    %c.5 = graph.weight {symbol = "c.5"} : tensor<1x32x1x1xf32>
    %0 = graph.conv %x, %w, %b {node = "both"} : (tensor<1x32x6x6xbf16>, tensor<32x32x1x1xbf16>, tensor<32xbf16>) -> tensor<1x32x6x6xf32>
    %1 = graph.cast %x {to = "float32"} : (tensor<1x32x6x6xbf16>) -> tensor<1x32x6x6xf32>
    %2 = graph.add %0, %1 {node = "residual"} : (tensor<1x32x6x6xf32>, tensor<1x32x6x6xf32>) -> tensor<1x32x6x6xf32>
    %3 = graph.relu %wide {node = "relu"} : (tensor<1x32x6x6xf32>) -> tensor<1x32x6x6xf32>
    %4 = graph.conv %half, %v {node = "weights alone"} : (tensor<1x32x6x6xf32>, tensor<32x32x1x1xf16>) -> tensor<1x32x6x6xf32>
    %5 = graph.mul %4, %c.5 {node = "scale"} : (tensor<1x32x6x6xf32>, tensor<1x32x1x1xf32>) -> tensor<1x32x6x6xf32>
    %table = graph.gather %e, %i {axis = 0 : i64, node = "table"} : (tensor<9x4xf16>, tensor<3xi64>) -> tensor<3x4xf16>
    %table_1 = graph.cast %table {to = "float32", node = "table"} : (tensor<3x4xf16>) -> tensor<3x4xf32>
    graph.output %2, %3, %5, %table_1 : tensor<1x32x6x6xf32>, tensor<1x32x6x6xf32>, tensor<1x32x6x6xf32>, tensor<3x4xf32>
  }
}
