module {
  // matmul_node, relu_node, cast_node
  func.func @k(%input: memref<32x64xf16, #hivm.address_space<gm>>, %weight: memref<64x48xf16, #hivm.address_space<gm>>, %bias: memref<48xf32, #hivm.address_space<gm>>, %output: memref<32x48xf16, #hivm.address_space<gm>>)
      attributes {hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>} {
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %c48 = arith.constant 48 : index
    %all = arith.constant true
    %input_cbuf = memref.alloc() : memref<4x2x16x16xf16, #hivm.address_space<cbuf>>
    hivm.hir.nd2nz {dst_continuous} ins(%input : memref<32x64xf16, #hivm.address_space<gm>>) outs(%input_cbuf : memref<4x2x16x16xf16, #hivm.address_space<cbuf>>)
    %weight_cbuf = memref.alloc() : memref<3x4x16x16xf16, #hivm.address_space<cbuf>>
    hivm.hir.nd2nz {dst_continuous} ins(%weight : memref<64x48xf16, #hivm.address_space<gm>>) outs(%weight_cbuf : memref<3x4x16x16xf16, #hivm.address_space<cbuf>>)
    %bias_cbuf = memref.alloc() : memref<48xf32, #hivm.address_space<cbuf>>
    hivm.hir.load ins(%bias : memref<48xf32, #hivm.address_space<gm>>) outs(%bias_cbuf : memref<48xf32, #hivm.address_space<cbuf>>)
    %output_cc = memref.alloc() : memref<3x2x16x16xf32, #hivm.address_space<cc>>
    hivm.hir.mmadL1 ins(%input_cbuf, %weight_cbuf, %all, %c32, %c64, %c48, %bias_cbuf : memref<4x2x16x16xf16, #hivm.address_space<cbuf>>, memref<3x4x16x16xf16, #hivm.address_space<cbuf>>, i1, index, index, index, memref<48xf32, #hivm.address_space<cbuf>>) outs(%output_cc : memref<3x2x16x16xf32, #hivm.address_space<cc>>)
    hivm.hir.fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, pre_relu = #hivm.fixpipe_pre_relu_mode<NORMAL_RELU>, pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>} ins(%output_cc : memref<3x2x16x16xf32, #hivm.address_space<cc>>) outs(%output : memref<32x48xf16, #hivm.address_space<gm>>)
    return
  }
}
