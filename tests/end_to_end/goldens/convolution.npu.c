// tilewright compile convolution.onnx -t examples/machines/small-npu-c.toml -o package; cat package/program/c/src/*_k*.c
/* k0_c: c, y */
#include "convolution_network.h"

void convolution_k0_c(const struct npu_memory *memory) {
    int weight_slot = 1;
    int bias_slot = 1;
    int input_slot = 3;
    int output_slot = 3;
    npu_ticket input_filled[4] = {0};
    npu_ticket output_filled[4] = {0};
    npu_ticket ticket = 0;

    for (int64_t co = 0; co < 16; co += 8) {
        /* w_3adc5c52_5b1f965e: [co, ci, kh, kw] in weight at 0, 1152 bytes, 2 slots */
        weight_slot = (weight_slot + 1) % 2;
        /* b_086af818_7919cfe1: [co] in weight at 2304, 32 bytes, 2 slots */
        bias_slot = (bias_slot + 1) % 2;

        npu_load_weight(&(struct npu_load_weight){
            .element = 2, .size0 = 8, .size1 = 3, .size2 = 3, .size3 = 8,
            .source_address = memory->weights + co * 144 + 64, .source_stride0 = 144,
            .source_stride1 = 48, .source_stride2 = 16, .source_stride3 = 2,
            .target_address = co * 144, .target_stride0 = 144, .target_stride1 = 48,
            .target_stride2 = 16, .target_stride3 = 2,
            .extra_bytes = 32, .extra_source = memory->weights + co * 4,
            .extra_target = co * 4 + 2304,
        });
        for (int64_t ow = 0; ow < 6; ow += 3) {
            /* quantise: [n, ci, oh + kh - 1, ow + kw - 1] in feature at 0, 384 bytes, 4 slots */
            input_slot = (input_slot + 1) % 4;
            /* y_requantise: [n, co, oh, ow] in result at 0, 288 bytes, 4 slots */
            output_slot = (output_slot + 1) % 4;

            ticket = npu_load_feature(&(struct npu_load_feature){
                .element = 2, .size0 = 6, .size1 = 4, .size2 = 8, .size3 = 1,
                .source_address = memory->activations + (ow / 3) * 32 + 1152, .source_stride0 = 96,
                .source_stride1 = 16, .source_stride2 = 2,
                .target_address = co * 96 + ow * 128, .target_stride0 = 64, .target_stride1 = 16,
                .target_stride2 = 2,
            });
            input_filled[input_slot] = ticket;

            npu_wait(NPU_COMPUTE, NPU_LOAD, input_filled[input_slot]);
            ticket = npu_conv(&(struct npu_conv){
                .n = 1, .g = 1, .co = 8, .oh = 6, .ow = 3, .ci = 8, .kh = 3, .kw = 3, .stride_h = 1,
                .stride_w = 1, .dilation_h = 1, .dilation_w = 1, .row = -1, .rows = 6,
                .column = (ow / 3) - 1, .columns = 4,
                .input_address = co * 96 + ow * 128, .input_h = 64, .input_w = 16, .input_c = 2,
                .weight_address = co * 144, .weight_co = 144, .weight_kh = 48, .weight_kw = 16,
                .weight_ci = 2,
                .bias = 1, .bias_address = co * 4 + 2304, .bias_c = 4,
                .output_address = co * 72 + ow * 96, .output_h = 48, .output_w = 16, .output_c = 2,
                .first = 1, .last = 1,
                .then2 = NPU_CONV_THEN2_RELU, .then3 = NPU_CONV_THEN3_REQUANTISE, .then3_x = 25,
                .then3_y = 10,
            });
            output_filled[output_slot] = ticket;

            npu_wait(NPU_STORE, NPU_COMPUTE, output_filled[output_slot]);
            npu_store_result(&(struct npu_store_result){
                .element = 2, .size0 = 6, .size1 = 3, .size2 = 8, .size3 = 1,
                .source_address = co * 72 + ow * 96, .source_stride0 = 48, .source_stride1 = 16,
                .source_stride2 = 2,
                .target_address = memory->activations + co * 2 + ow * 32 + 2304,
                .target_stride0 = 192, .target_stride1 = 32, .target_stride2 = 2,
            });
        }
    }
    npu_finish();
    (void)memory;
}
