; tilewright compile residual.onnx -t shidiannao -o package; tilewright disasm package
; kernel k0_c: c, s, y
load_nbin size0=8, size1=4, size2=4, source.address=0x1400, source.stride0=32, source.stride1=8, source.stride2=2, target.stride0=32, target.stride1=8, target.stride2=2
load_sb size0=8, size1=8, source.stride0=16, source.stride1=2, target.stride0=16, target.stride1=2
load_nbout size0=8, size1=4, size2=4, source.address=0x1200, source.stride0=32, source.stride1=8, source.stride2=2, target.stride0=32, target.stride1=8, target.stride2=2
conv wait.load=3, co=8, oh=4, ow=4, ci=8, rows=4, columns=4, input.h=8, input.w=2, input.c=32, weight.co=16, weight.ci=2, output.address=0x100, output.h=8, output.w=2, output.c=32, then1=add, then1.x=26, then1.y=13, then2=relu, then3=requantise, then3.x=26, then3.y=12, residual.h=8, residual.w=2, residual.c=32
store_nbout wait.compute=1, size0=8, size1=4, size2=4, source.address=0x100, source.stride0=32, source.stride1=8, source.stride2=2, target.address=0x1200, target.stride0=32, target.stride1=8, target.stride2=2
