// tilewright opt FILE -p 'boundary{everywhere=true}' --target cambricon-x
// co 40 = 2 x 16 + 8 and oh 28 = 3 x 8 + 4: four nests, with buffers of their own names.
tile.program "k" on "cambricon-x" [n 1, co 40, oh 28, ow 28 | ci 32, kh 3, kw 3] {
  %x = tile.tensor "x" {role = "input"} : tensor<1x32x28x28x!tilewright.fixed<16, 8>>
  %w = tile.tensor "w" {role = "weight"} : tensor<40x32x3x3x!tilewright.fixed<16, 12>>
  %b = tile.tensor "b" {role = "bias"} : tensor<40x!tilewright.fixed<32, 20>>
  %y = tile.tensor "y" {role = "output"} : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
tile.loop "co" 0 to 40 step 16 {
tile.loop "oh" 0 to 28 step 8 {
%by = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 1 accumulates role "output"
tile.loop "ci" 0 to 32 step 16 {
%bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
tile.move %x to %bx on "load"
%bw = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
tile.move %w to %bw on "load"
%bb = tile.buffer "b" of %b [co] in "sb" slots 1 role "bias"
tile.move %b to %bb on "load" joined
tile.compute "conv" on "compute" to %by {
%0 = tile.stage "conv"(%bx [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw], %bb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
%1 = tile.stage "requantise"(%0 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
}
}
tile.move %by to %y on "store"
}
}
}
// -----
builtin.module {
  tile.program "k" on "cambricon-x" [n 1, co 40, oh 28, ow 28 | ci 32, kh 3, kw 3] {
    %x = tile.tensor "x" {role = "input"} : tensor<1x32x28x28x!tilewright.fixed<16, 8>>
    %w = tile.tensor "w" {role = "weight"} : tensor<40x32x3x3x!tilewright.fixed<16, 12>>
    %b = tile.tensor "b" {role = "bias"} : tensor<40x!tilewright.fixed<32, 20>>
    %y = tile.tensor "y" {role = "output"} : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
    tile.loop "co" 0 to 32 step 16 {
      tile.loop "oh" 0 to 24 step 8 {
        %by = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 1 accumulates role "output"
        tile.loop "ci" 0 to 32 step 16 {
          %bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
          tile.move %x to %bx on "load"
          %bw = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
          tile.move %w to %bw on "load"
          %bb = tile.buffer "b" of %b [co] in "sb" slots 1 role "bias"
          tile.move %b to %bb on "load" joined
          tile.compute "conv" on "compute" to %by {
            %0 = tile.stage "conv"(%bx [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw], %bb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
            %1 = tile.stage "requantise"(%0 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
          }
        }
        tile.move %by to %y on "store"
      }
      tile.loop "oh" 24 to 28 step 4 {
        %by_1 = tile.buffer "y.2" of %y [n, co, oh, ow] in "nbout" slots 1 accumulates role "output"
        tile.loop "ci" 0 to 32 step 16 {
          %bx_1 = tile.buffer "x.2" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
          tile.move %x to %bx_1 on "load"
          %bw_1 = tile.buffer "w.2" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
          tile.move %w to %bw_1 on "load"
          %bb_1 = tile.buffer "b.2" of %b [co] in "sb" slots 1 role "bias"
          tile.move %b to %bb_1 on "load" joined
          tile.compute "conv" on "compute" to %by_1 {
            %2 = tile.stage "conv"(%bx_1 [n, ci, oh + kh - 1, ow + kw - 1], %bw_1 [co, ci, kh, kw], %bb_1 [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
            %3 = tile.stage "requantise"(%2 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
          }
        }
        tile.move %by_1 to %y on "store"
      }
    }
    tile.loop "co" 32 to 40 step 8 {
      tile.loop "oh" 0 to 24 step 8 {
        %by_2 = tile.buffer "y.3" of %y [n, co, oh, ow] in "nbout" slots 1 accumulates role "output"
        tile.loop "ci" 0 to 32 step 16 {
          %bx_2 = tile.buffer "x.3" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
          tile.move %x to %bx_2 on "load"
          %bw_2 = tile.buffer "w.3" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
          tile.move %w to %bw_2 on "load"
          %bb_2 = tile.buffer "b.3" of %b [co] in "sb" slots 1 role "bias"
          tile.move %b to %bb_2 on "load" joined
          tile.compute "conv" on "compute" to %by_2 {
            %4 = tile.stage "conv"(%bx_2 [n, ci, oh + kh - 1, ow + kw - 1], %bw_2 [co, ci, kh, kw], %bb_2 [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
            %5 = tile.stage "requantise"(%4 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
          }
        }
        tile.move %by_2 to %y on "store"
      }
      tile.loop "oh" 24 to 28 step 4 {
        %by_3 = tile.buffer "y.4" of %y [n, co, oh, ow] in "nbout" slots 1 accumulates role "output"
        tile.loop "ci" 0 to 32 step 16 {
          %bx_3 = tile.buffer "x.4" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
          tile.move %x to %bx_3 on "load"
          %bw_3 = tile.buffer "w.4" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
          tile.move %w to %bw_3 on "load"
          %bb_3 = tile.buffer "b.4" of %b [co] in "sb" slots 1 role "bias"
          tile.move %b to %bb_3 on "load" joined
          tile.compute "conv" on "compute" to %by_3 {
            %6 = tile.stage "conv"(%bx_3 [n, ci, oh + kh - 1, ow + kw - 1], %bw_3 [co, ci, kh, kw], %bb_3 [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
            %7 = tile.stage "requantise"(%6 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
          }
        }
        tile.move %by_3 to %y on "store"
      }
    }
  }
}
