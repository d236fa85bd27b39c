// tilewright compile depthwise.onnx -t examples/machines/small-npu-c.toml -o package; cat package/program/c/src/*_k*.c
/* k0_y: y */
#include "depthwise_network.h"

void depthwise_k0_y(const struct npu_memory *memory) {
    int input_slot = 1;
    int weight_slot = 1;
    int output_slot = 1;
    npu_ticket weight_filled[2] = {0};
    npu_ticket output_filled[2] = {0};
    npu_ticket ticket = 0;

    for (int64_t c = 0; c < 16; c += 8) {
        /* quantise: [n, c, oh*2 + kh - 1, ow*2 + kw - 1] in feature at 0, 1024 bytes, 2 slots */
        input_slot = (input_slot + 1) % 2;
        /* w_60e0db7a_25afd201: [c, 0, kh, kw] in weight at 0, 144 bytes, 2 slots */
        weight_slot = (weight_slot + 1) % 2;
        /* y_requantise: [n, c, oh, ow] in result at 0, 256 bytes, 2 slots */
        output_slot = (output_slot + 1) % 2;

        npu_load_feature(&(struct npu_load_feature){
            .element = 2, .size0 = 8, .size1 = 8, .size2 = 8, .size3 = 1,
            .source_address = memory->activations + c * 2 + 4096, .source_stride0 = 256,
            .source_stride1 = 32, .source_stride2 = 2,
            .target_address = c * 128, .target_stride0 = 128, .target_stride1 = 16,
            .target_stride2 = 2,
        });

        ticket = npu_load_weight(&(struct npu_load_weight){
            .element = 2, .size0 = 8, .size1 = 3, .size2 = 3, .size3 = 1,
            .source_address = memory->weights + c * 18, .source_stride0 = 18, .source_stride1 = 6,
            .source_stride2 = 2,
            .target_address = c * 18, .target_stride0 = 18, .target_stride1 = 6,
            .target_stride2 = 2,
        });
        weight_filled[weight_slot] = ticket;

        npu_wait(NPU_COMPUTE, NPU_LOAD, weight_filled[weight_slot]);
        ticket = npu_depthwise(&(struct npu_depthwise){
            .n = 1, .c = 8, .oh = 4, .ow = 4, .kh = 3, .kw = 3, .stride_h = 2, .stride_w = 2,
            .dilation_h = 1, .dilation_w = 1, .row = -1, .rows = 8, .column = -1, .columns = 8,
            .input_address = c * 128, .input_h = 128, .input_w = 16, .input_c = 2,
            .weight_address = c * 18, .weight_c = 18, .weight_kh = 6, .weight_kw = 2,
            .output_address = c * 32, .output_h = 64, .output_w = 16, .output_c = 2,
            .first = 1, .last = 1,
            .then3 = NPU_DEPTHWISE_THEN3_REQUANTISE, .then3_x = 26, .then3_y = 11,
        });
        output_filled[output_slot] = ticket;

        npu_wait(NPU_STORE, NPU_COMPUTE, output_filled[output_slot]);
        npu_store_result(&(struct npu_store_result){
            .element = 2, .size0 = 4, .size1 = 4, .size2 = 8, .size3 = 1,
            .source_address = c * 32, .source_stride0 = 64, .source_stride1 = 16,
            .source_stride2 = 2,
            .target_address = memory->activations + c * 2 + 1024, .target_stride0 = 128,
            .target_stride1 = 32, .target_stride2 = 2,
        });
    }
    npu_finish();
    (void)memory;
}
