// tilewright opt FILE -p 'part-stores,allocate,synchronise,check' --target cambricon-x
builtin.module {
  tile.program "k0" on "cambricon-x" [n 1, co 32, oh 1, ow 42 | ci 128, kh 1, kw 1] slots [["in0", 2]] nodes ["conv_node", "add_node", "relu_node", "requantise_node"] {
    %in0 = tile.tensor "in0" {role = "input"} : tensor<1x128x1x42x!tilewright.fixed<16, 8>, "NHWC">
    %in1 = tile.tensor "in1" {role = "weight"} : tensor<32x128x1x1x!tilewright.fixed<16, 10>, "OHWI">
    %in2 = tile.tensor "in2" {role = "bias"} : tensor<32x!tilewright.fixed<32, 18>>
    %in3 = tile.tensor "in3" {role = "residual"} : tensor<1x32x1x42x!tilewright.fixed<16, 9>, "NHWC">
    %requantise_node = tile.tensor "requantise_node" {role = "output"} : tensor<1x32x1x42x!tilewright.fixed<16, 8>, "NHWC">
    tile.loop "co" 0 to 32 step 16 for "nbout" {
      tile.loop "ow" 0 to 42 step 28 for "nbout" {
        %requantise_node_nbout = tile.buffer "requantise_node" of %requantise_node [n, co, oh, ow] in "nbout" slots 1 accumulates role "output"
        %in3_nbout = tile.buffer "in3" of %in3 [n, co, oh, ow] in "nbout" slots 1 role "residual"
        tile.move %in3 to %in3_nbout on "load"
        tile.loop "ci" 0 to 128 step 64 for "nbin" {
          %in0_nbin = tile.buffer "in0" of %in0 [n, ci, oh + kh, ow + kw] in "nbin" slots 2 role "input"
          tile.move %in0 to %in0_nbin on "load"
          %in1_sb = tile.buffer "in1" of %in1 [co, ci, kh, kw] in "sb" slots 1 role "weight"
          tile.move %in1 to %in1_sb on "load"
          %in2_sb = tile.buffer "in2" of %in2 [co] in "sb" slots 1 role "bias"
          tile.move %in2 to %in2_sb on "load" joined
          tile.loop "ow" 0 to 28 step 14 for "compute" {
            tile.compute "conv" on "compute" to %requantise_node_nbout {
              %0 = tile.stage "conv"(%in0_nbin [n, ci, oh + kh, ow + kw], %in1_sb [co, ci, kh, kw], %in2_sb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} node "conv_node" : tensor<1x32x1x42x!tilewright.fixed<32, 18>, "NHWC">
              %1 = tile.stage "add"(%0 [n, co, oh, ow], %in3_nbout [n, co, oh, ow]) to [n, co, oh, ow] node "add_node" : tensor<1x32x1x42x!tilewright.fixed<32, 18>, "NHWC">
              %2 = tile.stage "relu"(%1 [n, co, oh, ow]) to [n, co, oh, ow] node "relu_node" : tensor<1x32x1x42x!tilewright.fixed<32, 18>, "NHWC">
              %3 = tile.stage "requantise"(%2 [n, co, oh, ow]) to [n, co, oh, ow] node "requantise_node" : tensor<1x32x1x42x!tilewright.fixed<16, 8>, "NHWC">
            }
          }
        }
        tile.move %requantise_node_nbout to %requantise_node on "store"
      }
    }
  }
}
// -----
builtin.module {
  tile.program "k0" on "cambricon-x" [n 1, co 32, oh 1, ow 42 | ci 128, kh 1, kw 1] slots [["in0", 2]] nodes ["conv_node", "add_node", "relu_node", "requantise_node"] {
    %in0 = tile.tensor "in0" {role = "input"} : tensor<1x128x1x42x!tilewright.fixed<16, 8>, "NHWC">
    %in1 = tile.tensor "in1" {role = "weight"} : tensor<32x128x1x1x!tilewright.fixed<16, 10>, "OHWI">
    %in2 = tile.tensor "in2" {role = "bias"} : tensor<32x!tilewright.fixed<32, 18>>
    %in3 = tile.tensor "in3" {role = "residual"} : tensor<1x32x1x42x!tilewright.fixed<16, 9>, "NHWC">
    %requantise_node = tile.tensor "requantise_node" {role = "output"} : tensor<1x32x1x42x!tilewright.fixed<16, 8>, "NHWC">
    tile.loop "co" 0 to 32 step 16 for "nbout" {
      tile.loop "ow" 0 to 42 step 28 for "nbout" {
        %requantise_node_nbout = tile.buffer "requantise_node" of %requantise_node [n, co, oh, ow] in "nbout" slots 1 accumulates role "output" shape [1, 16, 1, 28] address 0 bytes 1792
        %in3_nbout = tile.buffer "in3" of %in3 [n, co, oh, ow] in "nbout" slots 1 role "residual" shape [1, 16, 1, 28] address 1792 bytes 896
        tile.move %in3 to %in3_nbout on "load" waits ["free in3"]
        tile.loop "ci" 0 to 128 step 64 for "nbin" {
          %in0_nbin = tile.buffer "in0" of %in0 [n, ci, oh + kh, ow + kw] in "nbin" slots 2 role "input" shape [1, 64, 1, 28] address 0 bytes 3584
          tile.move %in0 to %in0_nbin on "load"
          %in1_sb = tile.buffer "in1" of %in1 [co, ci, kh, kw] in "sb" slots 1 role "weight" shape [16, 64, 1, 1] address 0 bytes 2048
          tile.move %in1 to %in1_sb on "load" waits ["free in1"]
          %in2_sb = tile.buffer "in2" of %in2 [co] in "sb" slots 1 role "bias" shape [16] address 2048 bytes 64
          tile.move %in2 to %in2_sb on "load" joined
          tile.loop "ow" 0 to 28 step 14 for "compute" {
            tile.compute "conv" on "compute" to %requantise_node_nbout waits ["ready in1", "free requantise_node"] {
              %0 = tile.stage "conv"(%in0_nbin [n, ci, oh + kh, ow + kw], %in1_sb [co, ci, kh, kw], %in2_sb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} node "conv_node" : tensor<1x32x1x42x!tilewright.fixed<32, 18>, "NHWC">
              %1 = tile.stage "add"(%0 [n, co, oh, ow], %in3_nbout [n, co, oh, ow]) to [n, co, oh, ow] node "add_node" : tensor<1x32x1x42x!tilewright.fixed<32, 18>, "NHWC">
              %2 = tile.stage "relu"(%1 [n, co, oh, ow]) to [n, co, oh, ow] node "relu_node" : tensor<1x32x1x42x!tilewright.fixed<32, 18>, "NHWC">
              %3 = tile.stage "requantise"(%2 [n, co, oh, ow]) to [n, co, oh, ow] node "requantise_node" : tensor<1x32x1x42x!tilewright.fixed<16, 8>, "NHWC">
            }
          }
        }
        tile.loop "ow" 0 to 28 step 14 for "compute" {
          tile.move %requantise_node_nbout to %requantise_node on "store" waits ["ready requantise_node"]
        }
      }
    }
  }
}
