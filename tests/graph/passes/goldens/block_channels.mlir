// passes: partition, fuse-pointwise, assign-layouts, block-channels; machine: accc
graph.network "net" attributes {input_names = ["x", "z"], output_names = ["y"]} {
^bb0(%x: tensor<1x256x7x7xf32>, %z: tensor<1x64x7x7xf32>):
  %u = graph.weight {symbol = "u"} : tensor<1024x64x1x1xf32>
  %v = graph.weight {symbol = "v"} : tensor<1024x256x1x1xf32>
  %w = graph.weight {symbol = "w"} : tensor<32x1024x1x1xf32>
  %1 = graph.conv %z, %u {node = "first"} : (tensor<1x64x7x7xf32>, tensor<1024x64x1x1xf32>) -> tensor<1x1024x7x7xf32>
  %2 = graph.conv %x, %v {node = "wide"} : (tensor<1x256x7x7xf32>, tensor<1024x256x1x1xf32>) -> tensor<1x1024x7x7xf32>
  %3 = graph.add %2, %1 {node = "add"} : (tensor<1x1024x7x7xf32>, tensor<1x1024x7x7xf32>) -> tensor<1x1024x7x7xf32>
  %4 = graph.conv %3, %w {node = "narrow"} : (tensor<1x1024x7x7xf32>, tensor<32x1024x1x1xf32>) -> tensor<1x32x7x7xf32>
  graph.output %4 : tensor<1x32x7x7xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x", "z"], output_names = ["y"]} {
  ^bb0(%x: tensor<1x256x7x7xf32>, %z: tensor<1x64x7x7xf32>):
    %0 = graph.kernel "k3_copy_z" (%z) : (tensor<1x64x7x7xf32>) -> tensor<1x64x7x7xf32, "NHWC"> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%z_1: tensor<1x64x7x7xf32>):
      %1 = graph.convert_layout %z_1 : (tensor<1x64x7x7xf32>) -> tensor<1x64x7x7xf32, "NHWC">
      graph.yield %1 : tensor<1x64x7x7xf32, "NHWC">
    }
    %u = graph.weight {symbol = "u"} : tensor<1024x64x1x1xf32, "OHWI">
    %2 = graph.kernel "k0_first" (%0, %u) : (tensor<1x64x7x7xf32, "NHWC">, tensor<1024x64x1x1xf32, "OHWI">) -> tensor<1x1024x7x7xf32, "NCHW128c"> attributes {engine = "accelerator"} {
    ^bb0(%z_2: tensor<1x64x7x7xf32, "NHWC">, %u_1: tensor<1024x64x1x1xf32, "OHWI">):
      %3 = graph.conv %z_2, %u_1 {node = "first"} : (tensor<1x64x7x7xf32, "NHWC">, tensor<1024x64x1x1xf32, "OHWI">) -> tensor<1x1024x7x7xf32, "NCHW128c">
      graph.yield %3 : tensor<1x1024x7x7xf32, "NCHW128c">
    }
    %4 = graph.kernel "k4_copy_x" (%x) : (tensor<1x256x7x7xf32>) -> tensor<1x256x7x7xf32, "NHWC"> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%x_1: tensor<1x256x7x7xf32>):
      %5 = graph.convert_layout %x_1 : (tensor<1x256x7x7xf32>) -> tensor<1x256x7x7xf32, "NHWC">
      graph.yield %5 : tensor<1x256x7x7xf32, "NHWC">
    }
    %v = graph.weight {symbol = "v"} : tensor<1024x256x1x1xf32, "OHWI">
    %6 = graph.kernel "k1_wide" (%4, %v, %2) : (tensor<1x256x7x7xf32, "NHWC">, tensor<1024x256x1x1xf32, "OHWI">, tensor<1x1024x7x7xf32, "NCHW128c">) -> tensor<1x1024x7x7xf32, "NCHW128c"> attributes {engine = "accelerator"} {
    ^bb0(%x_2: tensor<1x256x7x7xf32, "NHWC">, %v_1: tensor<1024x256x1x1xf32, "OHWI">, %7: tensor<1x1024x7x7xf32, "NCHW128c">):
      %8 = graph.conv %x_2, %v_1 {node = "wide"} : (tensor<1x256x7x7xf32, "NHWC">, tensor<1024x256x1x1xf32, "OHWI">) -> tensor<1x1024x7x7xf32, "NCHW128c">
      %9 = graph.add %8, %7 {node = "add"} : (tensor<1x1024x7x7xf32, "NCHW128c">, tensor<1x1024x7x7xf32, "NCHW128c">) -> tensor<1x1024x7x7xf32, "NCHW128c">
      graph.yield %9 : tensor<1x1024x7x7xf32, "NCHW128c">
    }
    %w = graph.weight {symbol = "w"} : tensor<32x1024x1x1xf32, "OHWI">
    %10 = graph.kernel "k2_narrow" (%6, %w) : (tensor<1x1024x7x7xf32, "NCHW128c">, tensor<32x1024x1x1xf32, "OHWI">) -> tensor<1x32x7x7xf32, "NHWC"> attributes {engine = "accelerator"} {
    ^bb0(%11: tensor<1x1024x7x7xf32, "NCHW128c">, %w_1: tensor<32x1024x1x1xf32, "OHWI">):
      %12 = graph.conv %11, %w_1 {node = "narrow"} : (tensor<1x1024x7x7xf32, "NCHW128c">, tensor<32x1024x1x1xf32, "OHWI">) -> tensor<1x32x7x7xf32, "NHWC">
      graph.yield %12 : tensor<1x32x7x7xf32, "NHWC">
    }
    %13 = graph.kernel "k5_copy_k2_narrow" (%10) : (tensor<1x32x7x7xf32, "NHWC">) -> tensor<1x32x7x7xf32> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%14: tensor<1x32x7x7xf32, "NHWC">):
      %15 = graph.convert_layout %14 : (tensor<1x32x7x7xf32, "NHWC">) -> tensor<1x32x7x7xf32>
      graph.yield %15 : tensor<1x32x7x7xf32>
    }
    graph.output %13 : tensor<1x32x7x7xf32>
  }
}
