; tilewright compile residual.onnx -t cambricon-x -o package; tilewright disasm package
; kernel k0_c: c, s, y
load_nbin size0=16, size1=8, source.address=0x1400, source.stride0=16, source.stride1=2, target.stride0=16, target.stride1=2
load_sb size0=8, size1=8, source.stride0=16, source.stride1=2, target.stride0=16, target.stride1=2
load_nbout size0=16, size1=8, source.address=0x1200, source.stride0=16, source.stride1=2, target.stride0=16, target.stride1=2
conv wait.load=3, co=8, ow=16, ci=8, columns=16, input.h=256, input.w=16, input.c=2, weight.co=16, weight.ci=2, output.address=0x100, output.w=16, output.c=2, then1=add, then1.x=26, then1.y=13, then2=relu, then3=requantise, then3.x=26, then3.y=12, residual.w=16, residual.c=2
store_nbout wait.compute=1, size0=16, size1=8, source.address=0x100, source.stride0=16, source.stride1=2, target.address=0x1200, target.stride0=16, target.stride1=2
