// tilewright compile pool.onnx -t examples/machines/small-npu-c.toml -o package; cat package/program/c/src/*_k*.c
/* k0_y: y */
#include "pool_network.h"

void pool_k0_y(const struct npu_memory *memory) {
    int input_slot = 1;
    int output_slot = 1;
    npu_ticket input_filled[2] = {0};
    npu_ticket output_filled[2] = {0};
    npu_ticket ticket = 0;

    for (int64_t c = 0; c < 16; c += 8) {
        /* quantise: [n, c, oh*2 + kh, ow*2 + kw] in feature at 0, 784 bytes, 2 slots */
        input_slot = (input_slot + 1) % 2;
        /* y: [n, c, oh, ow] in result at 0, 144 bytes, 2 slots */
        output_slot = (output_slot + 1) % 2;

        ticket = npu_load_feature(&(struct npu_load_feature){
            .element = 2, .size0 = 7, .size1 = 7, .size2 = 8, .size3 = 1,
            .source_address = memory->activations + c * 2 + 3136, .source_stride0 = 224,
            .source_stride1 = 32, .source_stride2 = 2,
            .target_address = c * 98, .target_stride0 = 112, .target_stride1 = 16,
            .target_stride2 = 2,
        });
        input_filled[input_slot] = ticket;

        npu_wait(NPU_COMPUTE, NPU_LOAD, input_filled[input_slot]);
        ticket = npu_pool(&(struct npu_pool){
            .n = 1, .c = 8, .oh = 3, .ow = 3, .kh = 3, .kw = 3, .stride_h = 2, .stride_w = 2,
            .dilation_h = 1, .dilation_w = 1, .rows = 7, .columns = 7, .window_h = 1, .window_w = 1,
            .input_address = c * 98, .input_h = 112, .input_w = 16, .input_c = 2,
            .output_address = c * 18, .output_h = 48, .output_w = 16, .output_c = 2,
            .first = 1, .last = 1,
        });
        output_filled[output_slot] = ticket;

        npu_wait(NPU_STORE, NPU_COMPUTE, output_filled[output_slot]);
        npu_store_result(&(struct npu_store_result){
            .element = 2, .size0 = 3, .size1 = 3, .size2 = 8, .size3 = 1,
            .source_address = c * 18, .source_stride0 = 48, .source_stride1 = 16,
            .source_stride2 = 2,
            .target_address = memory->activations + c * 2 + 576, .target_stride0 = 96,
            .target_stride1 = 32, .target_stride2 = 2,
        });
    }
    npu_finish();
    (void)memory;
}
