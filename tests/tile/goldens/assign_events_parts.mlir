// tilewright opt FILE -p 'synchronise,assign-events' --target ascend910
// A bias is read as sums leave; what both loads from gm bring is handed on at once; a part ends.
tile.program "k" on "m" [m 32, co 64 | ci 64] levels ["gm", "cbuf", "ca"] shared "co" {
  %x = tile.tensor "x" {role = "input"} : tensor<32x64xf16>
  %w = tile.tensor "w" {role = "weight"} : tensor<64x64xf16>
  %b = tile.tensor "b" {role = "bias"} : tensor<64xf16>
  %y = tile.tensor "y" {role = "output"} : tensor<32x64xf16>
  tile.loop "co" 0 to 64 step 32 for "gm" {
    %b_ub = tile.buffer "b" of %b [co] in "ub" slots 1 at_store role "bias" shape [32] address 0 bytes 64
    tile.move %b to %b_ub on "mte2"
    %y_ub = tile.buffer "y.ub" of %y [m, co] in "ub" slots 1 role "output" shape [32, 32] address 64 bytes 2048
    %y_cc = tile.buffer "y" of %y_ub [m, co] in "cc" slots 1 accumulates role "output" shape [32, 32] address 0 bytes 4096
    tile.loop "ci" 0 to 64 step 16 for "cbuf" {
      %x_cbuf = tile.buffer "x.cbuf" of %x [m, ci] in "cbuf" slots 2 role "input" shape [32, 16] address 0 bytes 1024
      tile.move %x to %x_cbuf on "mte2"
      %x_ca = tile.buffer "x" of %x_cbuf [m, ci] in "ca" slots 2 role "input" shape [32, 16] address 0 bytes 1024
      %w_cbuf = tile.buffer "w.cbuf" of %w [co, ci] in "cbuf" slots 2 role "weight" shape [32, 16] address 2048 bytes 1024
      tile.move %w to %w_cbuf on "mte2"
      %w_cb = tile.buffer "w" of %w_cbuf [co, ci] in "cb" slots 2 role "weight" shape [32, 16] address 0 bytes 1024
      tile.move %x_cbuf to %x_ca on "mte1"
      tile.move %w_cbuf to %w_cb on "mte1"
      tile.compute "mad" on "m" to %y_cc {
        %0 = tile.stage "matmul"(%x_ca [m, ci], %w_cb [co, ci], %b_ub [co]) to [m, co] with {transpose_a = false, transpose_b = true} : tensor<32x64xf16>
      }
    }
    tile.move %y_cc to %y_ub on "v"
    tile.move %y_ub to %y on "mte3"
  }
}
// -----
builtin.module {
  tile.program "k" on "m" [m 32, co 64 | ci 64] levels ["gm", "cbuf", "ca"] shared "co" {
    %x = tile.tensor "x" {role = "input"} : tensor<32x64xf16>
    %w = tile.tensor "w" {role = "weight"} : tensor<64x64xf16>
    %b = tile.tensor "b" {role = "bias"} : tensor<64xf16>
    %y = tile.tensor "y" {role = "output"} : tensor<32x64xf16>
    tile.signal "mte1" to "mte2" ids [0]
    tile.signal "mte1" to "mte2" ids [1]
    tile.signal "m" to "mte1" ids [0]
    tile.signal "m" to "mte1" ids [1]
    tile.loop "co" 0 to 64 step 32 for "gm" {
      %b_ub = tile.buffer "b" of %b [co] in "ub" slots 1 at_store role "bias" shape [32] address 0 bytes 64
      tile.move %b to %b_ub on "mte2"
      %y_ub = tile.buffer "y.ub" of %y [m, co] in "ub" slots 1 role "output" shape [32, 32] address 64 bytes 2048
      %y_cc = tile.buffer "y" of %y_ub [m, co] in "cc" slots 1 accumulates role "output" shape [32, 32] address 0 bytes 4096
      tile.loop "ci" 0 to 64 step 16 for "cbuf" {
        %x_cbuf = tile.buffer "x.cbuf" of %x [m, ci] in "cbuf" slots 2 role "input" shape [32, 16] address 0 bytes 1024
        tile.wait "mte1" to "mte2" ids [0, 1] of %x_cbuf
        tile.move %x to %x_cbuf on "mte2"
        %x_ca = tile.buffer "x" of %x_cbuf [m, ci] in "ca" slots 2 role "input" shape [32, 16] address 0 bytes 1024
        %w_cbuf = tile.buffer "w.cbuf" of %w [co, ci] in "cbuf" slots 2 role "weight" shape [32, 16] address 2048 bytes 1024
        tile.move %w to %w_cbuf on "mte2"
        tile.signal "mte2" to "mte1" ids [0, 1] of %x_cbuf
        %w_cb = tile.buffer "w" of %w_cbuf [co, ci] in "cb" slots 2 role "weight" shape [32, 16] address 0 bytes 1024
        tile.wait "mte2" to "mte1" ids [0, 1] of %x_cbuf
        tile.wait "m" to "mte1" ids [0, 1] of %x_ca
        tile.move %x_cbuf to %x_ca on "mte1"
        tile.move %w_cbuf to %w_cb on "mte1"
        tile.signal "mte1" to "mte2" ids [0, 1] of %x_cbuf
        tile.signal "mte1" to "m" ids [0, 1] of %w_cb
        tile.wait "mte1" to "m" ids [0, 1] of %w_cb
        tile.compute "mad" on "m" to %y_cc {
          %0 = tile.stage "matmul"(%x_ca [m, ci], %w_cb [co, ci], %b_ub [co]) to [m, co] with {transpose_a = false, transpose_b = true} : tensor<32x64xf16>
        }
        tile.signal "m" to "mte1" ids [0, 1] of %x_ca
      }
      tile.signal "m" to "v" ids [0]
      tile.wait "m" to "v" ids [0]
      tile.move %y_cc to %y_ub on "v"
      tile.signal "v" to "mte3" ids [0]
      tile.wait "v" to "mte3" ids [0]
      tile.move %y_ub to %y on "mte3"
      tile.barrier "a part ends"
    }
    tile.wait "mte1" to "mte2" ids [0]
    tile.wait "mte1" to "mte2" ids [1]
    tile.wait "m" to "mte1" ids [0]
    tile.wait "m" to "mte1" ids [1]
  }
}
