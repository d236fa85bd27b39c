// tilewright opt FILE -p 'interleave' --target zu2
// A convolution and a pool of its rows: instructions of both are issued as they can begin.
builtin.module {
  tile.program "k0" on "zu2" [n 1, c 15, oh 35, ow 10, oh_1 37, ow_1 11 | kh 5, kw 5, ci_1 18, kh_1 2, kw_1 2] slots [["requantise_node", 2], ["max_pool_node", 2], ["in0", 2], ["in1", 2], ["in2", 2]] nodes ["conv_node", "requantise_node", "max_pool_node"] {
    %in0 = tile.tensor "in0" {role = "input", arena = "activations", offset = 0, strides = [8208, 216, 18, 1]} : tensor<1x18x38x12x!tilewright.fixed<8, 4>, "NHWC">
    %in1 = tile.tensor "in1" {role = "weight", arena = "weights", offset = 0, strides = [72, 36, 18, 1]} : tensor<15x18x2x2x!tilewright.fixed<8, 9>, "OHWI">
    %in2 = tile.tensor "in2" {role = "bias", arena = "weights", offset = 1088, strides = [1]} : tensor<15x!tilewright.fixed<32, 13>>
    %max_pool_node = tile.tensor "max_pool_node" {role = "output", arena = "activations", offset = 8256, strides = [5250, 150, 15, 1]} : tensor<1x15x35x10x!tilewright.fixed<8, 4>, "NHWC">
    %requantise_node = tile.tensor "requantise_node" {role = "internal"} : tensor<1x15x37x11x!tilewright.fixed<8, 4>, "NHWC">
    tile.loop "c" 0 to 15 step 12 for "vb1" {
      tile.loop "ow" 0 to 10 step 2 for "vb1" {
        tile.loop "oh" 0 to 35 step 4 for "vb1" {
          %requantise_node_vb1 = tile.buffer "requantise_node" of %requantise_node [n, c, oh + kh - 2, ow + kw - 2] in "vb1" slots 1 circular 2 role "input"
          tile.domain [oh_1 = oh + kh - 2, ow_1 = ow + kw - 2] sliding ["oh_1"] {
            %in0_vb0 = tile.buffer "in0" of %in0 [n, ci_1, oh_1 + kh_1, ow_1 + kw_1] in "vb0" slots 1 role "input"
            tile.move %in0 to %in0_vb0 on "load"
            %in1_weight = tile.buffer "in1" of %in1 [c, ci_1, kh_1, kw_1] in "weight" slots 1 role "weight"
            tile.move %in1 to %in1_weight on "load"
            %in2_bias = tile.buffer "in2" of %in2 [c] in "bias" slots 1 role "bias"
            tile.move %in2 to %in2_bias on "load"
            tile.compute "conv" on "conv" to %requantise_node_vb1 dims {co = "c", oh = "oh_1", ow = "ow_1", ci = "ci_1", kh = "kh_1", kw = "kw_1"} {
              %0 = tile.stage "conv"(%in0_vb0 [n, ci_1, oh_1 + kh_1, ow_1 + kw_1], %in1_weight [c, ci_1, kh_1, kw_1], %in2_bias [c]) to [n, c, oh_1, ow_1] with {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} node "conv_node" : tensor<1x15x37x11x!tilewright.fixed<32, 13>, "NHWC">
              %1 = tile.stage "requantise"(%0 [n, c, oh_1, ow_1]) to [n, c, oh_1, ow_1] node "requantise_node" : tensor<1x15x37x11x!tilewright.fixed<8, 4>, "NHWC">
            }
          }
          %max_pool_node_vb1 = tile.buffer "max_pool_node" of %max_pool_node [n, c, oh, ow] in "vb1" slots 1 role "output"
          tile.compute "pool" on "misc" to %max_pool_node_vb1 {
            %2 = tile.stage "max_pool"(%requantise_node_vb1 [n, c, oh + kh - 2, ow + kw - 2]) to [n, c, oh, ow] with {kernel = [5, 5], strides = [1, 1], pads = [2, 2, 0, 1], dilations = [1, 1]} node "max_pool_node" : tensor<1x15x35x10x!tilewright.fixed<8, 4>, "NHWC">
          }
          tile.move %max_pool_node_vb1 to %max_pool_node on "save"
        }
      }
    }
  }
}
// -----
builtin.module {
  tile.program "k0" on "zu2" [n 1, c 15, oh 35, ow 10, oh_1 37, ow_1 11 | kh 5, kw 5, ci_1 18, kh_1 2, kw_1 2] slots [["requantise_node", 2], ["max_pool_node", 2], ["in0", 2], ["in1", 2], ["in2", 2]] nodes ["conv_node", "requantise_node", "max_pool_node"] attributes {interleaved} {
    %in0 = tile.tensor "in0" {role = "input", arena = "activations", offset = 0, strides = [8208, 216, 18, 1]} : tensor<1x18x38x12x!tilewright.fixed<8, 4>, "NHWC">
    %in1 = tile.tensor "in1" {role = "weight", arena = "weights", offset = 0, strides = [72, 36, 18, 1]} : tensor<15x18x2x2x!tilewright.fixed<8, 9>, "OHWI">
    %in2 = tile.tensor "in2" {role = "bias", arena = "weights", offset = 1088, strides = [1]} : tensor<15x!tilewright.fixed<32, 13>>
    %max_pool_node = tile.tensor "max_pool_node" {role = "output", arena = "activations", offset = 8256, strides = [5250, 150, 15, 1]} : tensor<1x15x35x10x!tilewright.fixed<8, 4>, "NHWC">
    %requantise_node = tile.tensor "requantise_node" {role = "internal"} : tensor<1x15x37x11x!tilewright.fixed<8, 4>, "NHWC">
    tile.loop "c" 0 to 15 step 12 for "vb1" {
      tile.loop "ow" 0 to 10 step 2 for "vb1" {
        tile.loop "oh" 0 to 35 step 4 for "vb1" {
          %requantise_node_vb1 = tile.buffer "requantise_node" of %requantise_node [n, c, oh + kh - 2, ow + kw - 2] in "vb1" slots 1 circular 2 role "input"
          tile.domain [oh_1 = oh + kh - 2, ow_1 = ow + kw - 2] sliding ["oh_1"] {
            %in0_vb0 = tile.buffer "in0" of %in0 [n, ci_1, oh_1 + kh_1, ow_1 + kw_1] in "vb0" slots 1 role "input"
            tile.move %in0 to %in0_vb0 on "load"
            %in1_weight = tile.buffer "in1" of %in1 [c, ci_1, kh_1, kw_1] in "weight" slots 1 role "weight"
            tile.move %in1 to %in1_weight on "load"
            %in2_bias = tile.buffer "in2" of %in2 [c] in "bias" slots 1 role "bias"
            tile.move %in2 to %in2_bias on "load"
            tile.compute "conv" on "conv" to %requantise_node_vb1 dims {co = "c", oh = "oh_1", ow = "ow_1", ci = "ci_1", kh = "kh_1", kw = "kw_1"} {
              %0 = tile.stage "conv"(%in0_vb0 [n, ci_1, oh_1 + kh_1, ow_1 + kw_1], %in1_weight [c, ci_1, kh_1, kw_1], %in2_bias [c]) to [n, c, oh_1, ow_1] with {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} node "conv_node" : tensor<1x15x37x11x!tilewright.fixed<32, 13>, "NHWC">
              %1 = tile.stage "requantise"(%0 [n, c, oh_1, ow_1]) to [n, c, oh_1, ow_1] node "requantise_node" : tensor<1x15x37x11x!tilewright.fixed<8, 4>, "NHWC">
            }
          }
          %max_pool_node_vb1 = tile.buffer "max_pool_node" of %max_pool_node [n, c, oh, ow] in "vb1" slots 1 role "output"
          tile.compute "pool" on "misc" to %max_pool_node_vb1 {
            %2 = tile.stage "max_pool"(%requantise_node_vb1 [n, c, oh + kh - 2, ow + kw - 2]) to [n, c, oh, ow] with {kernel = [5, 5], strides = [1, 1], pads = [2, 2, 0, 1], dilations = [1, 1]} node "max_pool_node" : tensor<1x15x35x10x!tilewright.fixed<8, 4>, "NHWC">
          }
          tile.move %max_pool_node_vb1 to %max_pool_node on "save"
        }
      }
    }
  }
}
