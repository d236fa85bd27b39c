// tilewright opt FILE -p 'boundary{everywhere=true padding=true}' --target cambricon-x
// The first and the last iteration touch the padding above and below.
tile.program "k" on "cambricon-x" [n 1, co 40, oh 28, ow 28 | ci 32, kh 3, kw 3] {
  %x = tile.tensor "x" {role = "input"} : tensor<1x32x28x28x!tilewright.fixed<16, 8>>
  %w = tile.tensor "w" {role = "weight"} : tensor<40x32x3x3x!tilewright.fixed<16, 12>>
  %b = tile.tensor "b" {role = "bias"} : tensor<40x!tilewright.fixed<32, 20>>
  %y = tile.tensor "y" {role = "output"} : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
%bw = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
tile.move %w to %bw on "load"
%bb = tile.buffer "b" of %b [co] in "sb" slots 1 role "bias"
tile.move %b to %bb on "load" joined
tile.loop "oh" 0 to 28 step 7 {
%bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
tile.move %x to %bx on "load"
%by = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 1 role "output"
tile.compute "conv" on "compute" to %by {
%0 = tile.stage "conv"(%bx [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw], %bb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
%1 = tile.stage "requantise"(%0 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
}
tile.move %by to %y on "store"
}
}
// -----
builtin.module {
  tile.program "k" on "cambricon-x" [n 1, co 40, oh 28, ow 28 | ci 32, kh 3, kw 3] {
    %x = tile.tensor "x" {role = "input"} : tensor<1x32x28x28x!tilewright.fixed<16, 8>>
    %w = tile.tensor "w" {role = "weight"} : tensor<40x32x3x3x!tilewright.fixed<16, 12>>
    %b = tile.tensor "b" {role = "bias"} : tensor<40x!tilewright.fixed<32, 20>>
    %y = tile.tensor "y" {role = "output"} : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
    %bw = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 1 role "weight"
    tile.move %w to %bw on "load"
    %bb = tile.buffer "b" of %b [co] in "sb" slots 1 role "bias"
    tile.move %b to %bb on "load" joined
    tile.loop "oh" 0 to 7 step 7 {
      %bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
      tile.move %x to %bx on "load"
      %by = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 1 role "output"
      tile.compute "conv" on "compute" to %by {
        %0 = tile.stage "conv"(%bx [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw], %bb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
        %1 = tile.stage "requantise"(%0 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
      }
      tile.move %by to %y on "store"
    }
    tile.loop "oh" 7 to 21 step 7 {
      %bx_1 = tile.buffer "x.2" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
      tile.move %x to %bx_1 on "load"
      %by_1 = tile.buffer "y.2" of %y [n, co, oh, ow] in "nbout" slots 1 role "output"
      tile.compute "conv" on "compute" to %by_1 {
        %2 = tile.stage "conv"(%bx_1 [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw], %bb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
        %3 = tile.stage "requantise"(%2 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
      }
      tile.move %by_1 to %y on "store"
    }
    tile.loop "oh" 21 to 28 step 7 {
      %bx_2 = tile.buffer "x.3" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1 role "input"
      tile.move %x to %bx_2 on "load"
      %by_2 = tile.buffer "y.3" of %y [n, co, oh, ow] in "nbout" slots 1 role "output"
      tile.compute "conv" on "compute" to %by_2 {
        %4 = tile.stage "conv"(%bx_2 [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw], %bb [co]) to [n, co, oh, ow] with {strides = [1, 1], pads = [1, 1, 1, 1]} node "conv1" : tensor<1x40x28x28x!tilewright.fixed<32, 20>>
        %5 = tile.stage "requantise"(%4 [n, co, oh, ow]) to [n, co, oh, ow] node "conv1" : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
      }
      tile.move %by_2 to %y on "store"
    }
  }
}
