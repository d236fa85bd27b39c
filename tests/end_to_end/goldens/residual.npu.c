// tilewright compile residual.onnx -t examples/machines/small-npu-c.toml -o package; cat package/program/c/src/*_k*.c
/* k0_c: c, s, y */
#include "residual_network.h"

void residual_k0_c(const struct npu_memory *memory) {
    npu_ticket residual_filled[1] = {0};
    npu_ticket output_filled[1] = {0};
    npu_ticket ticket = 0;

    /* quantise: [n, ci, oh + kh, ow + kw] in feature at 0, 256 bytes */
    /* w_cbe4c115_ff641920: [co, ci, kh, kw] in weight at 0, 128 bytes */
    /* quantise_2: [n, co, oh, ow] in result at 0, 256 bytes */
    /* y_requantise: [n, co, oh, ow] in result at 256, 256 bytes */

    npu_load_feature(&(struct npu_load_feature){
        .element = 2, .size0 = 16, .size1 = 8, .size2 = 1, .size3 = 1,
        .source_address = memory->activations + 1024, .source_stride0 = 16, .source_stride1 = 2,
        .target_stride0 = 16, .target_stride1 = 2,
    });

    npu_load_weight(&(struct npu_load_weight){
        .element = 2, .size0 = 8, .size1 = 8, .size2 = 1, .size3 = 1,
        .source_address = memory->weights, .source_stride0 = 16, .source_stride1 = 2,
        .target_stride0 = 16, .target_stride1 = 2,
    });

    ticket = npu_load_result(&(struct npu_load_result){
        .element = 2, .size0 = 16, .size1 = 8, .size2 = 1, .size3 = 1,
        .source_address = memory->activations + 512, .source_stride0 = 16, .source_stride1 = 2,
        .target_stride0 = 16, .target_stride1 = 2,
    });
    residual_filled[0] = ticket;

    npu_wait(NPU_COMPUTE, NPU_LOAD, residual_filled[0]);
    ticket = npu_conv(&(struct npu_conv){
        .n = 1, .g = 1, .co = 8, .oh = 1, .ow = 16, .ci = 8, .kh = 1, .kw = 1, .stride_h = 1,
        .stride_w = 1, .dilation_h = 1, .dilation_w = 1, .rows = 1, .columns = 16,
        .input_h = 256, .input_w = 16, .input_c = 2,
        .weight_co = 16, .weight_ci = 2,
        .output_address = 256, .output_w = 16, .output_c = 2,
        .first = 1, .last = 1,
        .then1 = NPU_CONV_THEN1_ADD, .then1_x = 26, .then1_y = 13, .then2 = NPU_CONV_THEN2_RELU,
        .then3 = NPU_CONV_THEN3_REQUANTISE, .then3_x = 26, .then3_y = 12,
        .residual_w = 16, .residual_c = 2,
    });
    output_filled[0] = ticket;

    npu_wait(NPU_STORE, NPU_COMPUTE, output_filled[0]);
    npu_store_result(&(struct npu_store_result){
        .element = 2, .size0 = 16, .size1 = 8, .size2 = 1, .size3 = 1,
        .source_address = 256, .source_stride0 = 16, .source_stride1 = 2,
        .target_address = memory->activations + 512, .target_stride0 = 16, .target_stride1 = 2,
    });
    npu_finish();
    (void)memory;
}
