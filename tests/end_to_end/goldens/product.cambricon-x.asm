; tilewright compile product.onnx -t cambricon-x -o package; tilewright disasm package
; kernel k0_y: y
load_nbin size0=4, size1=32, source.address=0x1200, source.stride0=64, source.stride1=2, target.stride0=64, target.stride1=2
load_sb size0=16, size1=32, source.stride0=64, source.stride1=2, target.stride0=64, target.stride1=2, extra.bytes=64, extra.source=0x400, extra.target=0x400
conv wait.load=2, n=4, co=16, ci=32, input.n=64, input.c=2, weight.co=64, weight.ci=2, bias=1, bias.address=0x400, bias.c=4, output.n=32, output.c=2, then3=requantise, then3.x=24, then3.y=9
store_nbout wait.compute=1, size0=4, size1=16, source.stride0=32, source.stride1=2, target.address=0x1100, target.stride0=32, target.stride1=2
