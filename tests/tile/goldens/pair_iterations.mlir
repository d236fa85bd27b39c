// tilewright opt FILE -p 'pair-iterations{halves=true}' --target cambricon-x
// Buffers that are filled more than once get two slots; the program is marked.
tile.program "k" on "cambricon-x" [n 1, co 40, oh 28, ow 28 | ci 32, kh 3, kw 3] slots [["x", 2], ["w", 3], ["y", 2]] {
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
  tile.program "k" on "cambricon-x" [n 1, co 40, oh 28, ow 28 | ci 32, kh 3, kw 3] slots [["x", 2], ["w", 3], ["y", 2]] attributes {groups = "dlir"} {
    %x = tile.tensor "x" {role = "input"} : tensor<1x32x28x28x!tilewright.fixed<16, 8>>
    %w = tile.tensor "w" {role = "weight"} : tensor<40x32x3x3x!tilewright.fixed<16, 12>>
    %b = tile.tensor "b" {role = "bias"} : tensor<40x!tilewright.fixed<32, 20>>
    %y = tile.tensor "y" {role = "output"} : tensor<1x40x28x28x!tilewright.fixed<16, 8>>
    tile.loop "co" 0 to 40 step 16 {
      tile.loop "oh" 0 to 28 step 8 {
        %by = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 2 accumulates role "output"
        tile.loop "ci" 0 to 32 step 16 {
          %bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 2 role "input"
          tile.move %x to %bx on "load"
          %bw = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 2 role "weight"
          tile.move %w to %bw on "load"
          %bb = tile.buffer "b" of %b [co] in "sb" slots 2 role "bias"
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
}
