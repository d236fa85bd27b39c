// tilewright opt FILE -p 'prefetch' --target cambricon-x
tile.program "k" on "m" [m 8, co 8 | ci 8] levels ["l1", "l0a"] {
  %x = tile.tensor "x" {role = "input"} : tensor<8x8xf32>
  %w = tile.tensor "w" {role = "weight"} : tensor<8x8xf32>
  %y = tile.tensor "y" {role = "output"} : tensor<8x8xf32>
  %w_l1 = tile.buffer "w.l1" of %w [co, ci] in "l1" slots 1
  tile.move %w to %w_l1 on "mte2"
  tile.loop "m" 0 to 8 step 4 for "l1" {
    %x_l1 = tile.buffer "x.l1" of %x [m, ci] in "l1" slots 2
    tile.move %x to %x_l1 on "mte2"
    %y_l0c = tile.buffer "y" of %y [m, co] in "l0c" slots 1 accumulates
    tile.loop "ci" 0 to 8 step 2 for "l0a" {
      %x_l0a = tile.buffer "x" of %x_l1 [m, ci] in "l0a" slots 2
      tile.move %x_l1 to %x_l0a on "mte1"
      %w_l0b = tile.buffer "w" of %w_l1 [co, ci] in "l0b" slots 2
      tile.move %w_l1 to %w_l0b on "mte1"
      tile.compute "mmad" on "cube" to %y_l0c {
        %0 = tile.stage "matmul"(%x_l0a [m, ci], %w_l0b [co, ci]) to [m, co] : tensor<8x8xf32>
      }
    }
    tile.move %y_l0c to %y on "mte3"
  }
}
// -----
builtin.module {
  tile.program "k" on "m" [m 8, co 8 | ci 8] levels ["l1", "l0a"] {
    %x = tile.tensor "x" {role = "input"} : tensor<8x8xf32>
    %w = tile.tensor "w" {role = "weight"} : tensor<8x8xf32>
    %y = tile.tensor "y" {role = "output"} : tensor<8x8xf32>
    %w_l1 = tile.buffer "w.l1" of %w [co, ci] in "l1" slots 1
    tile.move %w to %w_l1 on "mte2"
    tile.loop "m" 0 to 8 step 4 for "l1" {
      %x_l1 = tile.buffer "x.l1" of %x [m, ci] in "l1" slots 2
      tile.move %x to %x_l1 on "mte2" ahead
      %y_l0c = tile.buffer "y" of %y [m, co] in "l0c" slots 1 accumulates
      tile.loop "ci" 0 to 8 step 2 for "l0a" {
        %x_l0a = tile.buffer "x" of %x_l1 [m, ci] in "l0a" slots 2
        tile.move %x_l1 to %x_l0a on "mte1"
        %w_l0b = tile.buffer "w" of %w_l1 [co, ci] in "l0b" slots 2
        tile.move %w_l1 to %w_l0b on "mte1"
        tile.compute "mmad" on "cube" to %y_l0c {
          %0 = tile.stage "matmul"(%x_l0a [m, ci], %w_l0b [co, ci]) to [m, co] : tensor<8x8xf32>
        }
      }
      tile.move %y_l0c to %y on "mte3"
    }
  }
}
