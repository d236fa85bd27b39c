"""The instruction words of shidiannao: opcodes are fixed here, fields follow from the machine.

ShiDianNao's own instructions program its control unit's state machine for networks that lie on
the chip whole; the thesis gives it instructions at tensor and matrix granularity and does not list
them. These are ours: those of the generic machinery for this machine, six transfers and one
instruction for each primitive. Words have 160 bytes (128 on the configuration with small buffers,
whose addresses are shorter).
``tilewright.targets.shidiannao.TARGET.manual(machine)`` prints every field.
"""

OPCODES = {
    "load_nbin": 0x10,
    "load_sb": 0x11,
    "load_nbout": 0x12,
    "load_tables": 0x13,
    "store_nbout": 0x18,
    "exchange": 0x19,
    "conv": 0x20,
    "depthwise_conv": 0x21,
    "pool": 0x22,
    "fc": 0x23,
    "vector": 0x30,
    "lrn": 0x31,
    "softmax": 0x32,
}
"""Transfers from 0x10, products and pooling from 0x20, pointwise and normalisation from 0x30."""
