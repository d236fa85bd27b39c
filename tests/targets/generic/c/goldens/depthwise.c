/* k0 */
#include "unit_network.h"

void kernel_under_test(const struct unit_memory *memory) {
    int weight_slot = 1;
    int bias_slot = 1;
    int input_slot = 1;
    int residual_slot = 1;
    int output_slot = 1;
    unit_ticket input_used[2] = {0};
    unit_ticket residual_filled[2] = {0};
    unit_ticket output_used[2] = {0};
    unit_ticket output_filled[2] = {0};
    unit_ticket ticket = 0;

    for (int64_t c = 0; c < 36; c += 16) {
        /* in1: [c, 0, kh, kw] in sb at 0, 288 bytes, 2 slots */
        weight_slot = (weight_slot + 1) % 2;
        /* in2: [c] in sb at 576, 64 bytes, 2 slots */
        bias_slot = (bias_slot + 1) % 2;

        unit_load_sb(&(struct unit_load_sb){
            .element = 2, .size0 = (c == 32 ? 4 : 16), .size1 = 3, .size2 = 3, .size3 = 1,
            .source_address = memory->activations + c * 18 + 25344, .source_stride0 = 18,
            .source_stride1 = 6, .source_stride2 = 2,
            .target_address = weight_slot * 288, .target_stride0 = 18, .target_stride1 = 6,
            .target_stride2 = 2,
            .extra_bytes = (c == 32 ? 16 : 64), .extra_source = memory->activations + c * 4 + 26048,
            .extra_target = bias_slot * 64 + 576,
        });
        for (int64_t n = 0; n < 2; n += 1) {
            for (int64_t oh = 0; oh < 16; oh += 4) {
                /* in0: [n, c, oh + kh - 1, ow + kw - 1] in nbin at 0, 2112 bytes, 2 slots */
                input_slot = (input_slot + 1) % 2;
                /* in3: [n, c, oh, ow] in nbout at 0, 1408 bytes, 2 slots */
                residual_slot = (residual_slot + 1) % 2;
                /* requantise_node: [n, c, oh, ow] in nbout at 2816, 1408 bytes, 2 slots */
                output_slot = (output_slot + 1) % 2;

                unit_wait(UNIT_LOAD, UNIT_COMPUTE, input_used[input_slot]);
                unit_load_nbin(&(struct unit_load_nbin){
                    .element = 2, .size0 = 1, .size1 = (oh == 0 ? 5 : oh == 12 ? 5 : 6),
                    .size2 = 11, .size3 = (c == 32 ? 4 : 16),
                    .source_address = memory->activations + c * 2 + n * 12672 + oh * 792 - 792 + (oh == 0 ? 792 : 0),
                    .source_stride0 = 12672, .source_stride1 = 792, .source_stride2 = 72,
                    .source_stride3 = 2,
                    .target_address = input_slot * 2112, .target_stride0 = 2112,
                    .target_stride1 = 352, .target_stride2 = 32, .target_stride3 = 2,
                });

                ticket = unit_load_nbout(&(struct unit_load_nbout){
                    .element = 2, .size0 = 1, .size1 = 4, .size2 = 11, .size3 = (c == 32 ? 4 : 16),
                    .source_address = memory->activations + c * 2 + n * 12672 + oh * 792 + 26240,
                    .source_stride0 = 12672, .source_stride1 = 792, .source_stride2 = 72,
                    .source_stride3 = 2,
                    .target_address = residual_slot * 1408, .target_stride0 = 1408,
                    .target_stride1 = 352, .target_stride2 = 32, .target_stride3 = 2,
                });
                residual_filled[residual_slot] = ticket;

                unit_wait(UNIT_COMPUTE, UNIT_LOAD, residual_filled[residual_slot]);
                unit_wait(UNIT_COMPUTE, UNIT_STORE, output_used[output_slot]);
                ticket = unit_depthwise_conv(&(struct unit_depthwise_conv){
                    .n = 1, .c = (c == 32 ? 4 : 16), .oh = 4, .ow = 11, .kh = 3, .kw = 3,
                    .stride_h = 1, .stride_w = 1, .dilation_h = 1, .dilation_w = 1,
                    .row = (oh == 0 ? -1 : 0), .rows = (oh == 0 ? 5 : oh == 12 ? 5 : 6),
                    .column = -1, .columns = 11,
                    .input_address = input_slot * 2112, .input_h = 352, .input_w = 32, .input_c = 2,
                    .weight_address = weight_slot * 288, .weight_c = 18, .weight_kh = 6,
                    .weight_kw = 2,
                    .bias = 1, .bias_address = bias_slot * 64 + 576, .bias_c = 4,
                    .output_address = output_slot * 1408 + 2816, .output_h = 352, .output_w = 32,
                    .output_c = 2,
                    .first = 1, .last = 1,
                    .then1 = UNIT_DEPTHWISE_CONV_THEN1_ADD, .then1_x = 18, .then1_y = 11,
                    .then2 = UNIT_DEPTHWISE_CONV_THEN2_RELU,
                    .then3 = UNIT_DEPTHWISE_CONV_THEN3_REQUANTISE, .then3_x = 18, .then3_y = 4,
                    .residual_address = residual_slot * 1408, .residual_h = 352, .residual_w = 32,
                    .residual_c = 2,
                });
                input_used[input_slot] = ticket;
                output_filled[output_slot] = ticket;

                unit_wait(UNIT_STORE, UNIT_COMPUTE, output_filled[output_slot]);
                ticket = unit_store_nbout(&(struct unit_store_nbout){
                    .element = 2, .size0 = 1, .size1 = 4, .size2 = 11, .size3 = (c == 32 ? 4 : 16),
                    .source_address = output_slot * 1408 + 2816, .source_stride0 = 1408,
                    .source_stride1 = 352, .source_stride2 = 32, .source_stride3 = 2,
                    .target_address = memory->activations + c * 2 + n * 12672 + oh * 792 + 51584,
                    .target_stride0 = 12672, .target_stride1 = 792, .target_stride2 = 72,
                    .target_stride3 = 2,
                });
                output_used[output_slot] = ticket;
            }
        }
    }
    unit_finish();
    (void)memory;
}
