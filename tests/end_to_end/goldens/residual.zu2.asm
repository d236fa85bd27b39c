; tilewright compile residual.onnx -t zu2 -o package; tilewright disasm package
; kernel k1_s: c, s, y
load bank_addr=0x700, bank_id=21, channel=12, reg_id=1
load jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x440
load bank_id=1, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x460
load bank_id=2, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x480
convinit shift_cut=7, valid_pixel_parallel=4
elewinit bank_id_in=4, jump_read_endl=4, jump_read=1
elewinit bank_addr_in=0x4, jump_read_endl=4, id=1, jump_read=1, shift_read=2
load bank_id=3, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x4a0
load bank_id=8, channel=8
load bank_id=9, channel=8, ddr_addr=0x8
load bank_id=10, channel=8, ddr_addr=0x10
load bank_id=11, channel=8, ddr_addr=0x18
load bank_id=12, channel=8, ddr_addr=0x20
load bank_id=13, channel=8, ddr_addr=0x28
load bank_id=14, channel=8, ddr_addr=0x30
load put=load+conv, bank_id=15, channel=8, ddr_addr=0x38
load put=load+misc, bank_addr=0x4, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x240
load put=load+misc, bank_addr=0x4, bank_id=1, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x260
load put=load+misc, bank_addr=0x4, bank_id=2, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x280
conv take=load+conv, put=conv+misc, length=4, bank_addr_bias=0x700, bank_id_out=4, bank_addr_in_1=0x4, bank_addr_in_2=0x8, bank_addr_in_3=0xc, channel_offset=4
load put=load+misc, bank_addr=0x4, bank_id=3, jump_read=8, length=4, channel=8, reg_id=2, ddr_addr=0x2a0
elew take=load+conv+misc, put=save+misc, length=4, act_type=relu, bank_id_out=4, bank_addr_out=0x4, jump_write_endl=4, num=2, shift_write=1
elewinit bank_id_in=5, jump_read_endl=4, jump_read=1
save take=save+misc, bank_addr=0x4, bank_id=4, jump_write=8, length=4, channel=8, reg_id=2, ddr_addr=0x240
elewinit bank_id_in=1, bank_addr_in=0x4, jump_read_endl=4, id=1, jump_read=1, shift_read=2
elew take=load+misc, put=save+misc, length=4, act_type=relu, bank_id_out=5, bank_addr_out=0x4, jump_write_endl=4, num=2, shift_write=1
elewinit bank_id_in=6, jump_read_endl=4, jump_read=1
save take=save+misc, bank_addr=0x4, bank_id=5, jump_write=8, length=4, channel=8, reg_id=2, ddr_addr=0x260
elewinit bank_id_in=2, bank_addr_in=0x4, jump_read_endl=4, id=1, jump_read=1, shift_read=2
elew take=load+misc, put=save+misc, length=4, act_type=relu, bank_id_out=6, bank_addr_out=0x4, jump_write_endl=4, num=2, shift_write=1
elewinit bank_id_in=7, jump_read_endl=4, jump_read=1
save take=save+misc, bank_addr=0x4, bank_id=6, jump_write=8, length=4, channel=8, reg_id=2, ddr_addr=0x280
elewinit bank_id_in=3, bank_addr_in=0x4, jump_read_endl=4, id=1, jump_read=1, shift_read=2
elew take=load+misc, put=save+misc, length=4, act_type=relu, bank_id_out=7, bank_addr_out=0x4, jump_write_endl=4, num=2, shift_write=1
save take=save+misc, bank_addr=0x4, bank_id=7, jump_write=8, length=4, channel=8, reg_id=2, ddr_addr=0x2a0
end
