"""The two revisions of the instruction set, as data: encoding, engine, time and meaning.

Layouts are those of AMD's public trace parser (revision 0: LOAD, SAVE, lengths) and functional
simulator (revision 1) of DPUCZDX8G. CONVINIT and CONV are the same in both; a real program of
revision 0 shows them, LOAD, SAVE and END at work. ELEWINIT of revision 0 has two words of which
only the length is published for this core: its layout is that of sister cores. The simulator's
dump instructions are no words of the hardware and left out.
"""

from __future__ import annotations

from tilewright.codegen.words import InstructionSet
from tilewright.targets.dpu.formats import (
    ACTIVATIONS,
    ALU_MODES,
    ELEMENTWISE,
    OPCODE,
    OPCODE_LOW,
    POOLS,
    instruction,
)

_LOAD = (
    "Copies `length` runs of `channel` bytes: run i from byte ddr_addr + i*jump_read relative to "
    "base register reg_id to row bank_addr + i*jump_write of one bank, on into the rows after "
    "it. Where channel >= jump_read and channel <= 2*icp, runs overlap (channel augmentation): "
    "bytes that lie in the first pad_start of the first run, or in the last pad_end of run "
    "length - pad_idx, are 0 in every run."
)
_SAVE = (
    "Copies `length` runs of `channel` bytes: run i from row bank_addr + i*jump_read of one "
    "bank to byte ddr_addr + i*jump_write relative to base register reg_id."
)
_CONV = (
    "Convolves valid_pixel_parallel rows of length pixels and channel_group groups of channels "
    "to one group of output channels: requantise(sum, bias, shift_bias, shift_cut, act_type). "
    "Row r of the window, padding included, lies in bank floor((stride_offset_in + r) / "
    "stride_h) after bank_id_in, round and round the group, each round at its own address "
    "bank_addr_in, _1, _2, _3; rows of one bank are jump_read_endl apart, pixels jump_read. "
    "pad_left and pad_top count; pad_right and pad_bottom hold kernel - 1 - count. The last "
    "channel_offset channels are 0. Weights of output channel j lie in weight bank j, "
    "[kernel_h, kernel_w, channel_group]. Results go likewise to the banks after bank_id_out, by "
    "stride_out, stride_offset_out, jump_write, jump_write_endl."
)

_CONVINIT = instruction(
    "convinit", 0x9, "conv",
    """
    jump_read:10+1 shift_cut:6 act_type:4
    jump_read_endl:10+1 shift_bias:6 -:12 stride_out:4+1
    jump_write:10+1 stride_offset_in:3 valid_pixel_parallel:3+1 -:8 kernel_h:4+1 stride_h:4+1
    jump_write_endl:10+1 stride_offset_out:3 -:11 kernel_w:4+1 stride_w:4+1
    """,
    "Sets what the CONVs after it have in common.", sets="conv",
    choices={"act_type": ACTIVATIONS},
)  # fmt: skip
_CONVOLVE = instruction(
    "conv", 0x8, "conv",
    """
    bank_addr_in:12 pad_top:4 pad_left:4
    bank_addr_out:12 pad_bottom:4 pad_right:4 -:4 channel_group:8+1
    bank_addr_weights:12 bank_id_in:6 -:4 length:10+1
    bank_addr_bias:12 bank_id_out:6 bank_addr_in_1:12 -:2
    bank_addr_in_2:12 bank_addr_in_3:12 channel_offset:5 -:3
    """,
    _CONV, "length * channel_group * kernel_h * kernel_w",
)  # fmt: skip
_POOLINIT = instruction(
    "poolinit", 0x6, "misc",
    """
    jump_read:10+1 kernel_h:3+1 kernel_w:3+1 shift_cut:4
    pool_type:2 stride_h:3+1 stride_w:3+1 stride_offset_in:3 valid_pixel_parallel:3+1 \
stride_offset_out:3 stride_out:4+1 jump_write:10+1 -:1
    """,
    "Sets what the POOLs after it have in common.", sets="pool",
    choices={"pool_type": POOLS},
)  # fmt: skip
_POOL = instruction(
    "pool", 0xC, "misc",
    """
    bank_addr_in:12 channel_group:8+1
    bank_id_in:6 pad_bottom:3 pad_right:3 pad_top:3 pad_left:3 jump_write_endl:12+1 -:2
    bank_id_out:6 length:10+1 jump_read_endl:12+1 -:4
    bank_addr_out:12 bank_addr_in_1:12 downsample_kernel_w:8+1
    bank_addr_in_2:12 bank_addr_in_3:12 downsample_kernel_h:8+1
    """,
    "Maximum (padding -128) or average (padding 0, counted) of windows, channel by channel; places "
    "as CONV's. The result is times 2**shift_cut, or divided by 2**(shift_cut - 8) from 8 upwards.",
    "length * channel_group * kernel_h * kernel_w",
)  # fmt: skip
_DWINIT = instruction(
    "dwinit", 0xB, "misc",
    """
    jump_read_endl:10+1 jump_read:10+1
    jump_write_endl:10+1 kernel_h:4+1 kernel_w:4+1 stride_h:4+1 stride_w:4+1 \
valid_pixel_parallel:3+1 stride_offset_in:3
    shift_cut:6 shift_bias:6 stride_offset_out:3 stride_out:4+1 jump_write:10+1 -:3
    """,
    "Sets what the DWCONVs after it have in common.", sets="dwconv",
)  # fmt: skip
_DWCONV = instruction(
    "dwconv", 0xA, "misc",
    """
    bank_addr_in:12 channel_group:8+1
    bank_addr_out:12 -:4 pad_bottom:4 pad_top:4 pad_right:4 pad_left:4
    bank_addr_weights:12 bank_id_in:6 length:10+1 act_type:4
    bank_addr_bias:12 bank_id_out:6 bank_addr_in_1:12 -:2
    bank_addr_in_2:12 bank_addr_in_3:12 channel_offset:5 -:3
    """,
    "Depthwise convolution; places and arithmetic as CONV's. Weights [kernel_h, kernel_w, "
    "channel_group] lie in the depthwise bank.",
    "length * channel_group * kernel_h * kernel_w",
    choices={"act_type": ACTIVATIONS},
)  # fmt: skip
_ELEW = instruction(
    "elew", 0xE, "misc",
    """
    length:11+1 act_type:1 elew_type:2 bank_id_out:6
    bank_addr_out:14 jump_write_endl:13+1 num:2+1 valid_pixel_parallel:3+1
    jump_write:12+1 shift_write:5 channel_group:8+1 -:7
    """,
    "Adds the operands of the last num ELEWINITs, or multiplies two. Row k of an operand lies in "
    "bank k after its own, jump_read_endl further where the group wraps. Each operand keeps two "
    "guard bits: floor(x * 4 / 2**shift_read). The result is times 2**shift_write, or divided by "
    "2**(shift_write - 8) from 8 upwards.",
    "length * channel_group * num",
    choices={"act_type": ACTIVATIONS[:2], "elew_type": ELEMENTWISE},
)  # fmt: skip
_END = instruction("end", 0x7, "save", "-:20", "Ends the program.")

_ELEWINIT = "Names one operand of the next ELEW; operands come in the order of their ELEWINITs."

REVISION_0 = InstructionSet(
    "DPUCZDX8G, revision 0", OPCODE, OPCODE_LOW,
    (
        instruction(
            "load", 0x0, "load",
            """
            bank_addr:12 bank_id:6 hp_id:2
            jump_read:16+1 pad_idx:5+1 pad_end:5 pad_start:5 -:1
            channel:12+1 mode_avg:2 length:10+1 jump_write:8+1
            ddr_addr:29 reg_id:3
            """,
            _LOAD,
        ),
        instruction(
            "save", 0x4, "save",
            """
            bank_addr:12 bank_id:6 hp_id:2
            jump_write:16+1 -:16
            channel:12+1 -:2 length:10+1 jump_read:8+1
            ddr_addr:29 reg_id:3
            """,
            _SAVE,
        ),
        _CONVINIT, _CONVOLVE, _POOLINIT, _POOL, _DWINIT, _DWCONV,
        instruction(
            "elewinit", 0xD, "misc",
            """
            jump_read:10+1 shift_read:4 bank_id_in:6
            bank_addr_in:12 id:2 jump_read_endl:12+1 -:6
            """,
            _ELEWINIT, sets="elew",
        ),
        _ELEW, _END,
    ),
)  # fmt: skip
"""The instruction set DPUCZDX8G_ISA0."""

REVISION_1 = InstructionSet(
    "DPUCZDX8G, revision 1", OPCODE, OPCODE_LOW,
    (
        instruction(
            "load", 0x0, "load",
            """
            bank_addr:12 -:2 bank_id:6
            jump_write:10+1 jump_read:16+1 -:6
            length:10+1 channel:14+1 -:3 pad_idx:5+1
            reg_id:3 -:5 const_value:8 broadcast:4 mode_avg:2 pad_end:5 pad_start:5
            ddr_addr:29 -:3
            """,
            _LOAD + " With broadcast 7 every byte is const_value and nothing is read.",
        ),
        instruction(
            "save", 0x4, "save",
            """
            bank_addr:12 -:2 bank_id:6
            jump_read:10+1 jump_write:16+1 -:1 argmax:2 hp_id:2 -:1
            length:10+1 channel:12+1 -:10
            reg_id:3 -:5 const_value:8 const_en:1 -:15
            ddr_addr:29 -:3
            """,
            _SAVE + " With const_en every byte is const_value.",
        ),
        _CONVINIT, _CONVOLVE, _POOLINIT, _POOL, _DWINIT, _DWCONV,
        instruction(
            "elewinit", 0xD, "misc",
            """
            -:13 share_pp:1 bank_id_in:6
            bank_addr_in:14 jump_read_endl:13+1 id:2 jump_bank:3+1
            jump_read:12 shift_read:4 -:16
            """,
            _ELEWINIT, sets="elew",
        ),
        _ELEW,
        instruction(
            "aluinit", 0x1, "misc",
            """
            kernel_w:8+1 kernel_h:8+1 exec_mode:4
            stride_offset_out:8 stride_offset_in:8 stride_w:8+1 stride_h:8+1
            length:11+1 channel_offset:5 channel_group:8+1 stride_out:8+1
            shift_prelu_n:6 shift_cut:6 shift_bias:6 act_type:4 shift_prelu_p:6 -:4
            jump_read_endl:13+1 jump_read:10+1 multi_factor:8 -:1
            jump_write_endl:13+1 jump_write:10+1 jump_read_weights:9
            """,
            "Sets what the ALUs after it have in common.", sets="alu",
            choices={"exec_mode": ALU_MODES, "act_type": ACTIVATIONS},
        ),
        instruction(
            "alu", 0x2, "misc",
            """
            bank_addr_out:14 bank_id_out:6
            bank_addr_in:14 bank_id_in:6 valid_pixel_parallel:3+1 pad_bottom:8 -:1
            bank_addr_in_1:14 pad_right:8 pad_left:4 pad_top:4 -:2
            bank_addr_in_2:14 bank_addr_weights:14 kernel_d:4+1
            bank_addr_in_3:14 bank_addr_bias:14 -:4
            """,
            "What exec_mode says: depthwise convolution (with and without bias), average of a "
            "window (sum * multi_factor, scaled as POOL does), maximum, leaky ReLU and PReLU "
            "with a slope of 8 bits, hard sigmoid. Places as CONV's.",
            "length * channel_group * kernel_h * kernel_w",
        ),
        _END,
    ),
)  # fmt: skip
"""The instruction set DPUCZDX8G_ISA1."""

REVISIONS = (REVISION_0, REVISION_1)
