; tilewright compile convolution.onnx -t zu2 -o package; tilewright disasm package
; kernel k0_c: c, y
load jump_read=8, length=6, channel=8, reg_id=2, ddr_addr=0x4c0
load bank_id=1, jump_read=8, length=6, channel=8, reg_id=2, ddr_addr=0x4f0
load bank_id=2, jump_read=8, length=6, channel=8, reg_id=2, ddr_addr=0x520
load bank_id=3, jump_read=8, length=6, channel=8, reg_id=2, ddr_addr=0x550
convinit shift_cut=8, act_type=relu, shift_bias=6, valid_pixel_parallel=4, kernel_h=3, kernel_w=3
load bank_addr=0x6, jump_read=8, length=6, channel=8, reg_id=2, ddr_addr=0x580
load bank_addr=0x6, bank_id=1, jump_read=8, length=6, channel=8, reg_id=2, ddr_addr=0x5b0
load bank_id=8, jump_read=8, length=9, channel=8, ddr_addr=0x40
load bank_id=9, jump_read=8, length=9, channel=8, ddr_addr=0x88
load bank_id=10, jump_read=8, length=9, channel=8, ddr_addr=0xd0
load bank_id=11, jump_read=8, length=9, channel=8, ddr_addr=0x118
load bank_id=12, jump_read=8, length=9, channel=8, ddr_addr=0x160
load bank_id=13, jump_read=8, length=9, channel=8, ddr_addr=0x1a8
load bank_id=14, jump_read=8, length=9, channel=8, ddr_addr=0x1f0
load bank_id=15, jump_read=8, length=9, channel=8, ddr_addr=0x238
load bank_id=16, jump_read=8, length=9, channel=8, ddr_addr=0x280
load bank_id=17, jump_read=8, length=9, channel=8, ddr_addr=0x2c8
load bank_id=18, jump_read=8, length=9, channel=8, ddr_addr=0x310
load bank_id=19, jump_read=8, length=9, channel=8, ddr_addr=0x358
load put=load+conv, bank_id=21, channel=12, reg_id=1, ddr_addr=0xc00
load bank_addr=0x9, bank_id=8, jump_read=8, length=9, channel=8, ddr_addr=0x3a0
load bank_addr=0x9, bank_id=9, jump_read=8, length=9, channel=8, ddr_addr=0x3e8
load bank_addr=0x9, bank_id=10, jump_read=8, length=9, channel=8, ddr_addr=0x430
conv take=load+conv, put=save+conv, bank_addr_in=0x7f9, pad_top=1, pad_left=1, pad_bottom=2, pad_right=1, bank_id_in=3, length=6, bank_id_out=4, bank_addr_in_1=0x7ff, bank_addr_in_2=0x5, bank_addr_in_3=0xb, channel_offset=4
load bank_addr=0x9, bank_id=11, jump_read=8, length=9, channel=8, ddr_addr=0x478
load put=load+conv, bank_addr=0x1, bank_id=21, channel=4, reg_id=1, ddr_addr=0xc0c
convinit shift_cut=8, act_type=relu, shift_bias=6, valid_pixel_parallel=2, kernel_h=3, kernel_w=3
save take=save+conv, bank_id=4, jump_write=16, length=6, channel=12, reg_id=2, ddr_addr=0x940
save bank_id=5, jump_write=16, length=6, channel=12, reg_id=2, ddr_addr=0x9a0
save bank_id=6, jump_write=16, length=6, channel=12, reg_id=2, ddr_addr=0xa00
save bank_id=7, jump_write=16, length=6, channel=12, reg_id=2, ddr_addr=0xa60
conv put=save+conv, bank_addr_in=0x7ff, pad_left=1, bank_addr_out=0x6, pad_bottom=1, pad_right=1, bank_id_in=3, length=6, bank_id_out=4, bank_addr_in_1=0x5, bank_addr_in_2=0xb, bank_addr_in_3=0x11, channel_offset=4
save take=save+conv, bank_addr=0x6, bank_id=4, jump_write=16, length=6, channel=12, reg_id=2, ddr_addr=0xac0
convinit shift_cut=8, act_type=relu, shift_bias=6, valid_pixel_parallel=4, kernel_h=3, kernel_w=3
save bank_addr=0x6, bank_id=5, jump_write=16, length=6, channel=12, reg_id=2, ddr_addr=0xb20
conv take=load+conv, put=save+conv, bank_addr_in=0x7f9, pad_top=1, pad_left=1, bank_addr_out=0xc, pad_bottom=2, pad_right=1, bank_addr_weights=0x9, bank_id_in=3, length=6, bank_addr_bias=0x1, bank_id_out=4, bank_addr_in_1=0x7ff, bank_addr_in_2=0x5, bank_addr_in_3=0xb, channel_offset=4
convinit shift_cut=8, act_type=relu, shift_bias=6, valid_pixel_parallel=2, kernel_h=3, kernel_w=3
save take=save+conv, bank_addr=0xc, bank_id=4, jump_write=16, length=6, channel=4, reg_id=2, ddr_addr=0x94c
save bank_addr=0xc, bank_id=5, jump_write=16, length=6, channel=4, reg_id=2, ddr_addr=0x9ac
save bank_addr=0xc, bank_id=6, jump_write=16, length=6, channel=4, reg_id=2, ddr_addr=0xa0c
save bank_addr=0xc, bank_id=7, jump_write=16, length=6, channel=4, reg_id=2, ddr_addr=0xa6c
conv put=save+conv, bank_addr_in=0x7ff, pad_left=1, bank_addr_out=0x12, pad_bottom=1, pad_right=1, bank_addr_weights=0x9, bank_id_in=3, length=6, bank_addr_bias=0x1, bank_id_out=4, bank_addr_in_1=0x5, bank_addr_in_2=0xb, bank_addr_in_3=0x11, channel_offset=4
save take=save+conv, bank_addr=0x12, bank_id=4, jump_write=16, length=6, channel=4, reg_id=2, ddr_addr=0xacc
save bank_addr=0x12, bank_id=5, jump_write=16, length=6, channel=4, reg_id=2, ddr_addr=0xb2c
end
