; tilewright compile pool.onnx -t zu2 -o package; tilewright disasm package
; kernel k0_y: y
load jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xc80
load bank_addr=0x2, jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xcf0
load bank_id=1, jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xd60
load bank_addr=0x2, bank_id=1, jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xdd0
poolinit jump_read=4, kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, valid_pixel_parallel=2, jump_write=2
load put=load+misc, bank_id=2, jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xe40
load bank_addr=0x2, bank_id=2, jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xeb0
load put=load+misc, bank_id=3, jump_write=4, jump_read=16, length=7, channel=16, reg_id=2, ddr_addr=0xf20
pool take=load+misc, put=save+misc, channel_group=2, pad_bottom=2, pad_right=2, jump_write_endl=2, bank_id_out=4, length=3, jump_read_endl=2, bank_addr_in_1=0x1c, bank_addr_in_2=0x38, bank_addr_in_3=0x54
poolinit jump_read=4, kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, jump_write=2
save take=save+misc, bank_id=4, jump_read=2, jump_write=16, length=3, channel=16, reg_id=2, ddr_addr=0x280
save bank_id=5, jump_read=2, jump_write=16, length=3, channel=16, reg_id=2, ddr_addr=0x2b0
pool take=load+misc, put=save+misc, channel_group=2, bank_id_in=2, pad_bottom=2, pad_right=2, jump_write_endl=2, bank_id_out=6, length=3, jump_read_endl=2, bank_addr_in_1=0x1c, bank_addr_in_2=0x38, bank_addr_in_3=0x54
save take=save+misc, bank_id=6, jump_read=2, jump_write=16, length=3, channel=16, reg_id=2, ddr_addr=0x2e0
end
