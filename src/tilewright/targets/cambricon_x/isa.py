"""The instruction words of cambricon-x: opcodes are fixed here, fields follow from the machine.

No instruction set of Cambricon-X is published; this one is ours. Its instructions are those of the
generic machinery for this machine, at tensor granularity: five transfers, and one instruction for
each primitive. Words have 128 bytes. ``tilewright.targets.cambricon_x.TARGET.manual(machine)``
prints every field.
"""

OPCODES = {
    "load_nbin": 0x10,
    "load_sb": 0x11,
    "load_nbout": 0x12,
    "load_tables": 0x13,
    "store_nbout": 0x18,
    "conv": 0x20,
    "depthwise_conv": 0x21,
    "pool": 0x22,
    "sparse_conv": 0x23,
    "vector": 0x30,
    "lrn": 0x31,
    "softmax": 0x32,
}
"""Transfers from 0x10, products and pooling from 0x20, the vector unit from 0x30."""
