// tilewright compile product.onnx -t examples/machines/small-npu-c.toml -o package; cat package/program/c/src/*_k*.c
/* k0_y: y */
#include "product_network.h"

void product_k0_y(const struct npu_memory *memory) {
    npu_ticket weight_filled[1] = {0};
    npu_ticket output_filled[1] = {0};
    npu_ticket ticket = 0;

    /* quantise: [n, ci] in feature at 0, 256 bytes */
    /* w_818bfcd8_375f5183: [co, ci] in weight at 0, 1024 bytes */
    /* b_dbff4e5c_99cc62f4: [co] in weight at 1024, 64 bytes */
    /* y_requantise: [n, co] in result at 0, 128 bytes */

    npu_load_feature(&(struct npu_load_feature){
        .element = 2, .size0 = 4, .size1 = 32, .size2 = 1, .size3 = 1,
        .source_address = memory->activations + 512, .source_stride0 = 64, .source_stride1 = 2,
        .target_stride0 = 64, .target_stride1 = 2,
    });

    ticket = npu_load_weight(&(struct npu_load_weight){
        .element = 2, .size0 = 16, .size1 = 32, .size2 = 1, .size3 = 1,
        .source_address = memory->weights, .source_stride0 = 64, .source_stride1 = 2,
        .target_stride0 = 64, .target_stride1 = 2,
        .extra_bytes = 64, .extra_source = memory->weights + 1024, .extra_target = 1024,
    });
    weight_filled[0] = ticket;

    npu_wait(NPU_COMPUTE, NPU_LOAD, weight_filled[0]);
    ticket = npu_conv(&(struct npu_conv){
        .n = 4, .g = 1, .co = 16, .oh = 1, .ow = 1, .ci = 32, .kh = 1, .kw = 1, .stride_h = 1,
        .stride_w = 1, .dilation_h = 1, .dilation_w = 1, .rows = 1, .columns = 1,
        .input_n = 64, .input_c = 2,
        .weight_co = 64, .weight_ci = 2,
        .bias = 1, .bias_address = 1024, .bias_c = 4,
        .output_n = 32, .output_c = 2,
        .first = 1, .last = 1,
        .then3 = NPU_CONV_THEN3_REQUANTISE, .then3_x = 24, .then3_y = 9,
    });
    output_filled[0] = ticket;

    npu_wait(NPU_STORE, NPU_COMPUTE, output_filled[0]);
    npu_store_result(&(struct npu_store_result){
        .element = 2, .size0 = 4, .size1 = 16, .size2 = 1, .size3 = 1,
        .source_stride0 = 32, .source_stride1 = 2,
        .target_address = memory->activations + 256, .target_stride0 = 32, .target_stride1 = 2,
    });
    npu_finish();
    (void)memory;
}
