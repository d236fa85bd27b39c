// tilewright opt FILE -p 'group-loads' --target examples/machines/flags.toml
// A loop or a compute ends a group.
tile.program "k" on "m" [m 8, co 8 | ci 8] levels ["l1", "l0a"] {
  %x = tile.tensor "x" {role = "input"} : tensor<8x8xf32>
  %w = tile.tensor "w" {role = "weight"} : tensor<8x8xf32>
  %b = tile.tensor "b" {role = "bias"} : tensor<8xf32>
  %y = tile.tensor "y" {role = "output"} : tensor<8x8xf32>
  %x_l1 = tile.buffer "x.l1" of %x [m, ci] in "l1" slots 1
  tile.move %x to %x_l1 on "mte2"
  %x_l0a = tile.buffer "x" of %x_l1 [m, ci] in "l0a" slots 1
  tile.move %x_l1 to %x_l0a on "mte1"
  tile.loop "co" 0 to 8 step 4 for "l1" {
    %w_l1 = tile.buffer "w.l1" of %w [co, ci] in "l1" slots 2
    tile.move %w to %w_l1 on "mte2"
    %w_l0b = tile.buffer "w" of %w_l1 [co, ci] in "l0b" slots 2
    tile.move %w_l1 to %w_l0b on "mte1"
    %b_l1 = tile.buffer "b.l1" of %b [co] in "l1" slots 2
    tile.move %b to %b_l1 on "mte2"
    %b_l0b = tile.buffer "b" of %b_l1 [co] in "l0b" slots 2
    tile.move %b_l1 to %b_l0b on "mte1"
    %y_ub = tile.buffer "y" of %y [m, co] in "ub" slots 1
    tile.compute "mad" on "cube" to %y_ub {
      %0 = tile.stage "matmul"(%x_l0a [m, ci], %w_l0b [co, ci], %b_l0b [co]) to [m, co] : tensor<8x8xf32>
    }
    tile.move %y_ub to %y on "mte3"
  }
}
// -----
builtin.module {
  tile.program "k" on "m" [m 8, co 8 | ci 8] levels ["l1", "l0a"] {
    %x = tile.tensor "x" {role = "input"} : tensor<8x8xf32>
    %w = tile.tensor "w" {role = "weight"} : tensor<8x8xf32>
    %b = tile.tensor "b" {role = "bias"} : tensor<8xf32>
    %y = tile.tensor "y" {role = "output"} : tensor<8x8xf32>
    %x_l1 = tile.buffer "x.l1" of %x [m, ci] in "l1" slots 1
    tile.move %x to %x_l1 on "mte2"
    %x_l0a = tile.buffer "x" of %x_l1 [m, ci] in "l0a" slots 1
    tile.move %x_l1 to %x_l0a on "mte1"
    tile.loop "co" 0 to 8 step 4 for "l1" {
      %w_l1 = tile.buffer "w.l1" of %w [co, ci] in "l1" slots 2
      tile.move %w to %w_l1 on "mte2"
      %w_l0b = tile.buffer "w" of %w_l1 [co, ci] in "l0b" slots 2
      %b_l1 = tile.buffer "b.l1" of %b [co] in "l1" slots 2
      tile.move %b to %b_l1 on "mte2"
      %b_l0b = tile.buffer "b" of %b_l1 [co] in "l0b" slots 2
      %y_ub = tile.buffer "y" of %y [m, co] in "ub" slots 1
      tile.move %w_l1 to %w_l0b on "mte1"
      tile.move %b_l1 to %b_l0b on "mte1"
      tile.compute "mad" on "cube" to %y_ub {
        %0 = tile.stage "matmul"(%x_l0a [m, ci], %w_l0b [co, ci], %b_l0b [co]) to [m, co] : tensor<8x8xf32>
      }
      tile.move %y_ub to %y on "mte3"
    }
  }
}
