"""The costs of registers that CPEs exchange: the record that planning takes
(planning/space/mesh.py)."""

from __future__ import annotations

from tilewright.planning.space.mesh import Mesh

MESH = Mesh(
    side=8,
    vector_elements=4,
    vector_cycles=3.0,
    turn_cycles=11.0,
    broadcast_cycles=2_000.0,
    broadcast_bytes=7.6,
)
"""A register of four floats takes three slots of the memory pipeline on either side: one to send or
receive it, two to load or store it where it does not lie aligned. From one CPE's last register to
the next CPE's first pass 11 cycles, the upper end of what was measured for a row or column.

DMA into the LDM of all CPEs: of 128 bytes to 24 KB (jameslinsjtu/swCandle, contiguous) it takes
1.4 us and 11 GB/s."""
