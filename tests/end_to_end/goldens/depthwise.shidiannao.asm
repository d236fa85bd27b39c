; tilewright compile depthwise.onnx -t shidiannao -o package; tilewright disasm package
; kernel k0_y: y
load_nbin size0=16, size1=8, size2=8, source.address=0x2000, source.stride0=128, source.stride1=16, source.stride2=2, target.stride0=128, target.stride1=16, target.stride2=2
load_sb size0=16, size1=3, size2=3, source.stride0=18, source.stride1=6, source.stride2=2, target.stride0=18, target.stride1=6, target.stride2=2
depthwise_conv wait.load=2, c=16, oh=4, ow=4, kh=3, kw=3, stride.h=2, stride.w=2, row=-1, rows=8, column=-1, columns=8, input.h=16, input.w=2, input.c=128, weight.c=18, weight.kh=6, weight.kw=2, output.h=8, output.w=2, output.c=32, then3=requantise, then3.x=26, then3.y=11
store_nbout wait.compute=1, size0=16, size1=4, size2=4, source.stride0=32, source.stride1=8, source.stride2=2, target.address=0x1400, target.stride0=32, target.stride1=8, target.stride2=2
