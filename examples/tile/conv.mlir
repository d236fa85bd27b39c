// LeNet-5's second convolution as build makes it: try the passes on it one by one.
// tilewright opt examples/tile/conv.mlir -p place-moves,double-buffer,allocate,synchronise,check
builtin.module {
  tile.program "k2_conv2" on "cambricon-x" [n 1, co 16, oh 10, ow 10 | ci 6, kh 5, kw 5] slots [["pool1", 2], ["relu2_requantise", 2]] nodes ["conv2", "relu2"] {
    %pool1 = tile.tensor "pool1" {role = "input"} : tensor<1x6x14x14x!tilewright.fixed<16, 13>, "NHWC">
    %conv2_weight = tile.tensor "conv2_weight" {role = "weight"} : tensor<16x6x5x5x!tilewright.fixed<16, 14>, "OHWI">
    %conv2_bias = tile.tensor "conv2_bias" {role = "bias"} : tensor<16x!tilewright.fixed<32, 27>>
    %relu2_requantise = tile.tensor "relu2_requantise" {role = "output"} : tensor<1x16x10x10x!tilewright.fixed<16, 12>, "NHWC">
    tile.loop "oh" 0 to 10 step 5 for "nbin" {
      tile.loop "ow" 0 to 10 step 1 for "nbin" {
        %pool1_nbin = tile.buffer "pool1" of %pool1 [n, ci, oh + kh, ow + kw] in "nbin" slots 1 role "input"
        tile.move %pool1 to %pool1_nbin on "load"
        %conv2_weight_sb = tile.buffer "conv2_weight" of %conv2_weight [co, ci, kh, kw] in "sb" slots 1 role "weight"
        tile.move %conv2_weight to %conv2_weight_sb on "load"
        %conv2_bias_sb = tile.buffer "conv2_bias" of %conv2_bias [co] in "sb" slots 1 role "bias"
        tile.move %conv2_bias to %conv2_bias_sb on "load" joined
        %relu2_requantise_nbout = tile.buffer "relu2_requantise" of %relu2_requantise [n, co, oh, ow] in "nbout" slots 1 role "output"
        tile.compute "conv" on "compute" to %relu2_requantise_nbout {
          %0 = tile.stage "conv"(%pool1_nbin [n, ci, oh + kh, ow + kw], %conv2_weight_sb [co, ci, kh, kw], %conv2_bias_sb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} node "conv2" : tensor<1x16x10x10x!tilewright.fixed<32, 27>, "NHWC">
          %1 = tile.stage "relu"(%0 [n, co, oh, ow]) to [n, co, oh, ow] node "relu2" : tensor<1x16x10x10x!tilewright.fixed<32, 27>, "NHWC">
          %2 = tile.stage "requantise"(%1 [n, co, oh, ow]) to [n, co, oh, ow] node "relu2" : tensor<1x16x10x10x!tilewright.fixed<16, 12>, "NHWC">
        }
        tile.move %relu2_requantise_nbout to %relu2_requantise on "store"
      }
    }
  }
}
