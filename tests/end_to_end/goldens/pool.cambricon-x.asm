; tilewright compile pool.onnx -t cambricon-x -o package; tilewright disasm package
; kernel k0_y: y
load_nbin size0=7, size1=7, size2=16, source.address=0xc40, source.stride0=224, source.stride1=32, source.stride2=2, target.stride0=224, target.stride1=32, target.stride2=2
pool wait.load=1, c=16, oh=3, ow=3, kh=3, kw=3, stride.h=2, stride.w=2, rows=7, columns=7, input.h=224, input.w=32, input.c=2, output.h=96, output.w=32, output.c=2
store_nbout wait.compute=1, size0=3, size1=3, size2=16, source.stride0=96, source.stride1=32, source.stride2=2, target.address=0x240, target.stride0=96, target.stride1=32, target.stride2=2
