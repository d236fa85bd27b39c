; tilewright compile pool.onnx -t shidiannao -o package; tilewright disasm package
; kernel k0_y: y
load_nbin size0=16, size1=7, size2=7, source.address=0xc40, source.stride0=98, source.stride1=14, source.stride2=2, target.stride0=98, target.stride1=14, target.stride2=2
pool wait.load=1, c=16, oh=3, ow=3, kh=3, kw=3, stride.h=2, stride.w=2, rows=7, columns=7, input.h=14, input.w=2, input.c=98, output.h=6, output.w=2, output.c=18
store_nbout wait.compute=1, size0=16, size1=3, size2=3, source.stride0=18, source.stride1=6, source.stride2=2, target.address=0x240, target.stride0=18, target.stride1=6, target.stride2=2
