; tilewright compile depthwise.onnx -t zu2 -o package; tilewright disasm package
; kernel k0_y: y
load bank_addr=0x700, bank_id=21, channel=24, reg_id=1
load bank_id=20, jump_write=2, jump_read=16, length=9, channel=16
load jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x1040
load bank_addr=0x2, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x10c0
dwinit jump_read_endl=2, jump_read=4, jump_write_endl=2, kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, valid_pixel_parallel=2, stride_offset_in=1, shift_cut=7, jump_write=2
load bank_id=1, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x1140
load put=load+misc, bank_addr=0x2, bank_id=1, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x11c0
load bank_id=2, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x1240
load bank_addr=0x2, bank_id=2, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x12c0
load bank_id=3, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x1340
load put=load+misc, bank_addr=0x2, bank_id=3, jump_write=4, jump_read=16, length=4, channel=16, reg_id=2, ddr_addr=0x13c0
dwconv take=load+misc, put=save+misc, bank_addr_in=0x7ec, channel_group=2, pad_bottom=2, pad_top=1, pad_right=2, pad_left=1, bank_id_in=3, length=2, bank_addr_bias=0x700, bank_id_out=4, bank_addr_in_1=0x7fc, bank_addr_in_2=0xc, bank_addr_in_3=0x1c, channel_offset=8
load bank_addr=0x14, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x1070
load bank_addr=0x16, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x10f0
load bank_addr=0x14, bank_id=1, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x1170
save take=save+misc, bank_id=4, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x440
save bank_id=5, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x480
dwconv take=load+misc, put=save+misc, bank_addr_in=0x7fc, channel_group=2, pad_bottom=2, pad_right=2, pad_left=1, bank_id_in=1, length=2, bank_addr_bias=0x700, bank_id_out=6, bank_addr_in_1=0xc, bank_addr_in_2=0x1c, bank_addr_in_3=0x2c, channel_offset=8
load put=load+misc, bank_addr=0x16, bank_id=1, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x11f0
load bank_addr=0x14, bank_id=2, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x1270
load bank_addr=0x16, bank_id=2, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x12f0
save take=save+misc, bank_id=6, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x4c0
save bank_id=7, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x500
load bank_addr=0x14, bank_id=3, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x1370
load put=load+misc, bank_addr=0x16, bank_id=3, jump_write=4, jump_read=16, length=5, channel=16, reg_id=2, ddr_addr=0x13f0
dwconv take=load+misc, put=save+misc, channel_group=2, bank_addr_out=0x4, pad_bottom=2, pad_top=1, pad_right=2, bank_id_in=3, length=2, bank_addr_bias=0x700, bank_id_out=4, bank_addr_in_1=0x14, bank_addr_in_2=0x28, bank_addr_in_3=0x3c, channel_offset=8
save take=save+misc, bank_addr=0x4, bank_id=4, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x460
save bank_addr=0x4, bank_id=5, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x4a0
dwconv take=load+misc, put=save+misc, bank_addr_in=0x14, channel_group=2, bank_addr_out=0x4, pad_bottom=2, pad_right=2, bank_id_in=1, length=2, bank_addr_bias=0x700, bank_id_out=6, bank_addr_in_1=0x28, bank_addr_in_2=0x3c, bank_addr_in_3=0x50, channel_offset=8
save take=save+misc, bank_addr=0x4, bank_id=6, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x4e0
save bank_addr=0x4, bank_id=7, jump_read=2, jump_write=16, length=2, channel=16, reg_id=2, ddr_addr=0x520
end
