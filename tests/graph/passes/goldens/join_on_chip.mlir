// passes: partition, fuse-pointwise, assign-layouts, join-on-chip; machine: accc
graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
^bb0(%x: tensor<1x16x9x9xf32>):
  %u = graph.weight {symbol = "u"} : tensor<16x16x1x1xf32>
  %v = graph.weight {symbol = "v"} : tensor<32x16x1x1xf32>
  %1 = graph.conv %x, %u {node = "left"} : (tensor<1x16x9x9xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x9x9xf32>
  %2 = graph.conv %x, %v {node = "right"} : (tensor<1x16x9x9xf32>, tensor<32x16x1x1xf32>) -> tensor<1x32x9x9xf32>
  %3 = graph.concat %1, %2 {axis = 1, node = "channels"} : (tensor<1x16x9x9xf32>, tensor<1x32x9x9xf32>) -> tensor<1x48x9x9xf32>
  %4 = graph.conv %x, %u {node = "above"} : (tensor<1x16x9x9xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x9x9xf32>
  %5 = graph.conv %x, %u {node = "below", pads = [1, 1, 1, 1]} : (tensor<1x16x9x9xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x11x11xf32>
  %6 = graph.max_pool %5 {kernel = [3, 3], node = "pool"} : (tensor<1x16x11x11xf32>) -> tensor<1x16x9x9xf32>
  %7 = graph.concat %4, %6 {axis = 2, node = "rows"} : (tensor<1x16x9x9xf32>, tensor<1x16x9x9xf32>) -> tensor<1x16x18x9xf32>
  graph.output %3, %7 : tensor<1x48x9x9xf32>, tensor<1x16x18x9xf32>
}
// -----
builtin.module {
  graph.network "net" attributes {input_names = ["x"], output_names = ["y", "z"]} {
  ^bb0(%x: tensor<1x16x9x9xf32>):
    %u = graph.weight {symbol = "u"} : tensor<16x16x1x1xf32>
    %0 = graph.kernel "k5_copy_x" (%x) : (tensor<1x16x9x9xf32>) -> tensor<1x16x9x9xf32, "NHWC"> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%x_1: tensor<1x16x9x9xf32>):
      %1 = graph.convert_layout %x_1 : (tensor<1x16x9x9xf32>) -> tensor<1x16x9x9xf32, "NHWC">
      graph.yield %1 : tensor<1x16x9x9xf32, "NHWC">
    }
    %u_1 = graph.weight {symbol = "u"} : tensor<16x16x1x1xf32, "OHWI">
    %2 = graph.kernel "k0_left" (%0, %u_1) : (tensor<1x16x9x9xf32, "NHWC">, tensor<16x16x1x1xf32, "OHWI">) -> tensor<1x16x9x9xf32, "NHWC"> attributes {engine = "accelerator"} {
    ^bb0(%x_2: tensor<1x16x9x9xf32, "NHWC">, %u_2: tensor<16x16x1x1xf32, "OHWI">):
      %3 = graph.conv %x_2, %u_2 {node = "left"} : (tensor<1x16x9x9xf32, "NHWC">, tensor<16x16x1x1xf32, "OHWI">) -> tensor<1x16x9x9xf32, "NHWC">
      graph.yield %3 : tensor<1x16x9x9xf32, "NHWC">
    }
    %v = graph.weight {symbol = "v"} : tensor<32x16x1x1xf32, "OHWI">
    %4 = graph.kernel "k1_right" (%0, %v) : (tensor<1x16x9x9xf32, "NHWC">, tensor<32x16x1x1xf32, "OHWI">) -> tensor<1x32x9x9xf32, "NHWC"> attributes {engine = "accelerator"} {
    ^bb0(%x_3: tensor<1x16x9x9xf32, "NHWC">, %v_1: tensor<32x16x1x1xf32, "OHWI">):
      %5 = graph.conv %x_3, %v_1 {node = "right"} : (tensor<1x16x9x9xf32, "NHWC">, tensor<32x16x1x1xf32, "OHWI">) -> tensor<1x32x9x9xf32, "NHWC">
      graph.yield %5 : tensor<1x32x9x9xf32, "NHWC">
    }
    %6 = graph.kernel "k9_channels" (%2, %4) : (tensor<1x16x9x9xf32, "NHWC">, tensor<1x32x9x9xf32, "NHWC">) -> tensor<1x48x9x9xf32, "NHWC"> attributes {engine = "accelerator"} {
    ^bb0(%7: tensor<1x16x9x9xf32, "NHWC">, %8: tensor<1x32x9x9xf32, "NHWC">):
      %9 = graph.concat %7, %8 {axis = 1 : i64, node = "channels"} : (tensor<1x16x9x9xf32, "NHWC">, tensor<1x32x9x9xf32, "NHWC">) -> tensor<1x48x9x9xf32, "NHWC">
      graph.yield %9 : tensor<1x48x9x9xf32, "NHWC">
    }
    %10 = graph.kernel "k2_above" (%0, %u_1) : (tensor<1x16x9x9xf32, "NHWC">, tensor<16x16x1x1xf32, "OHWI">) -> tensor<1x16x9x9xf32, "NHWC"> attributes {engine = "accelerator"} {
    ^bb0(%x_4: tensor<1x16x9x9xf32, "NHWC">, %u_3: tensor<16x16x1x1xf32, "OHWI">):
      %11 = graph.conv %x_4, %u_3 {node = "above"} : (tensor<1x16x9x9xf32, "NHWC">, tensor<16x16x1x1xf32, "OHWI">) -> tensor<1x16x9x9xf32, "NHWC">
      graph.yield %11 : tensor<1x16x9x9xf32, "NHWC">
    }
    %12 = graph.kernel "k3_below" (%x, %u) : (tensor<1x16x9x9xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x11x11xf32> attributes {engine = "host", reason = "a window lies wholly in the padding, which conv of cambricon leaves out (pad by less than the kernel's size)"} {
    ^bb0(%x_5: tensor<1x16x9x9xf32>, %u_4: tensor<16x16x1x1xf32>):
      %13 = graph.conv %x_5, %u_4 {node = "below", pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64]} : (tensor<1x16x9x9xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x11x11xf32>
      graph.yield %13 : tensor<1x16x11x11xf32>
    }
    %14 = graph.kernel "k6_copy_k3_below" (%12) : (tensor<1x16x11x11xf32>) -> tensor<1x16x11x11xf32, "NHWC"> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%15: tensor<1x16x11x11xf32>):
      %16 = graph.convert_layout %15 : (tensor<1x16x11x11xf32>) -> tensor<1x16x11x11xf32, "NHWC">
      graph.yield %16 : tensor<1x16x11x11xf32, "NHWC">
    }
    %17 = graph.kernel "k4_pool" (%14) : (tensor<1x16x11x11xf32, "NHWC">) -> tensor<1x16x9x9xf32, "NHWC"> attributes {engine = "accelerator"} {
    ^bb0(%18: tensor<1x16x11x11xf32, "NHWC">):
      %19 = graph.max_pool %18 {kernel = [3 : i64, 3 : i64], node = "pool"} : (tensor<1x16x11x11xf32, "NHWC">) -> tensor<1x16x9x9xf32, "NHWC">
      graph.yield %19 : tensor<1x16x9x9xf32, "NHWC">
    }
    %20 = graph.concat %10, %17 {axis = 2 : i64, node = "rows"} : (tensor<1x16x9x9xf32, "NHWC">, tensor<1x16x9x9xf32, "NHWC">) -> tensor<1x16x18x9xf32, "NHWC">
    %21 = graph.kernel "k7_copy" (%6) : (tensor<1x48x9x9xf32, "NHWC">) -> tensor<1x48x9x9xf32> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%22: tensor<1x48x9x9xf32, "NHWC">):
      %23 = graph.convert_layout %22 : (tensor<1x48x9x9xf32, "NHWC">) -> tensor<1x48x9x9xf32>
      graph.yield %23 : tensor<1x48x9x9xf32>
    }
    %24 = graph.kernel "k8_copy" (%20) : (tensor<1x16x18x9xf32, "NHWC">) -> tensor<1x16x18x9xf32> attributes {engine = "host", reason = "no primitive of cambricon computes convert_layout"} {
    ^bb0(%25: tensor<1x16x18x9xf32, "NHWC">):
      %26 = graph.convert_layout %25 : (tensor<1x16x18x9xf32, "NHWC">) -> tensor<1x16x18x9xf32>
      graph.yield %26 : tensor<1x16x18x9xf32>
    }
    graph.output %21, %24 : tensor<1x48x9x9xf32>, tensor<1x16x18x9xf32>
  }
}
