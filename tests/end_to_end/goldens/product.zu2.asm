; tilewright compile product.onnx -t zu2 -o package; tilewright disasm package
; kernel k0_y: y
load jump_write=3, channel=32, reg_id=2, ddr_addr=0x240
load bank_id=1, jump_write=3, channel=32, reg_id=2, ddr_addr=0x260
load bank_id=2, jump_write=3, channel=32, reg_id=2, ddr_addr=0x280
load bank_id=3, jump_write=3, channel=32, reg_id=2, ddr_addr=0x2a0
convinit jump_read=3, shift_cut=9, jump_read_endl=3, shift_bias=5, jump_write=2, valid_pixel_parallel=4, jump_write_endl=2
load bank_id=8, jump_write=3, channel=32
load bank_id=9, jump_write=3, channel=32, ddr_addr=0x20
load bank_id=10, jump_write=3, channel=32, ddr_addr=0x40
load bank_id=11, jump_write=3, channel=32, ddr_addr=0x60
load bank_id=12, jump_write=3, channel=32, ddr_addr=0x80
load bank_id=13, jump_write=3, channel=32, ddr_addr=0xa0
load bank_id=14, jump_write=3, channel=32, ddr_addr=0xc0
load bank_id=15, jump_write=3, channel=32, ddr_addr=0xe0
load bank_id=16, jump_write=3, channel=32, ddr_addr=0x100
load bank_id=17, jump_write=3, channel=32, ddr_addr=0x120
load bank_id=18, jump_write=3, channel=32, ddr_addr=0x140
load bank_id=19, jump_write=3, channel=32, ddr_addr=0x160
load bank_addr=0x3, bank_id=8, jump_write=3, channel=32, ddr_addr=0x180
load bank_addr=0x3, bank_id=9, jump_write=3, channel=32, ddr_addr=0x1a0
load bank_addr=0x3, bank_id=10, jump_write=3, channel=32, ddr_addr=0x1c0
load bank_addr=0x3, bank_id=11, jump_write=3, channel=32, ddr_addr=0x1e0
load put=load+conv, bank_id=21, channel=16, reg_id=1, ddr_addr=0xc00
conv take=load+conv, channel_group=3, bank_id_out=4, bank_addr_in_1=0x3, bank_addr_in_2=0x6, bank_addr_in_3=0x9, channel_offset=4
conv put=save+conv, bank_addr_out=0x1, channel_group=3, bank_addr_weights=0x3, bank_addr_bias=0x1, bank_id_out=4, bank_addr_in_1=0x3, bank_addr_in_2=0x6, bank_addr_in_3=0x9, channel_offset=4
save take=save+conv, bank_id=4, jump_read=2, channel=16, reg_id=2, ddr_addr=0x140
save bank_id=5, jump_read=2, channel=16, reg_id=2, ddr_addr=0x150
save bank_id=6, jump_read=2, channel=16, reg_id=2, ddr_addr=0x160
save bank_id=7, jump_read=2, channel=16, reg_id=2, ddr_addr=0x170
end
