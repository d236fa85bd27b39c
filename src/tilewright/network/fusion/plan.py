"""A fusion plan: which kernels are fused, as text and JSON.

fusion plan of "lenet5" for "cpu" by exact: 67630.0 cycles
fuse conv-pool: k0_conv1, k1_pool1 (15530.0 cycles)
alone: k2_conv2 (17222.0 cycles)

Tensors that stay on the chip for several kernels have a line each:

stays in vb0: "x" for k3_conv3, k4_conv4 (37632 bytes, 2210.0 cycles less)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FusedGroup:
    """A group of kernels that become one."""

    fusion: str
    """Name of the machine's fusion."""
    kernels: tuple[str, ...]
    """Symbols of the kernels, in the order of the network."""
    cycles: float


@dataclass(frozen=True)
class StayingTensor:
    """A tensor that stays on the chip, whole, from the first kernel that reads it to the last."""

    tensor: str
    memory: str
    readers: tuple[str, ...]
    """Symbols of the kernels that find it there, in the order of the network; the first loads it.
    A fused group goes by its last kernel."""
    bytes: int
    """Bytes that it takes of the memory."""
    gain: float
    """Simulated cycles by which the kernels of that time are faster so, with their neighbours."""


@dataclass(frozen=True)
class FusionPlan:
    """The fusions that a search chose for a network on a machine."""

    network: str
    machine: str
    search: str
    groups: tuple[FusedGroup, ...]
    alone: tuple[tuple[str, float], ...]
    """The other kernels of the accelerator, with their cycles."""
    stays: tuple[StayingTensor, ...] = ()

    @property
    def kernels(self) -> frozenset[str]:
        """The symbols of the kernels that remain under the plan."""
        groups = (group.kernels[-1] for group in self.groups)
        return frozenset((*groups, *(kernel for kernel, _ in self.alone)))

    @property
    def cycles(self) -> float:
        """The cycles of all kernels, each with its own loads of tensors that stay."""
        return sum(group.cycles for group in self.groups) + sum(alone for _, alone in self.alone)

    @property
    def hash(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        network, machine = json.dumps(self.network), json.dumps(self.machine)
        lines = [f"fusion plan of {network} for {machine} by {self.search}: {self.cycles!r} cycles"]
        for group in self.groups:
            kernels = ", ".join(group.kernels)
            lines.append(f"fuse {group.fusion}: {kernels} ({group.cycles!r} cycles)")
        lines += [f"alone: {kernel} ({cycles!r} cycles)" for kernel, cycles in self.alone]
        for tensor in self.stays:
            what = f"{json.dumps(tensor.tensor)} for {', '.join(tensor.readers)}"
            gain = f"({tensor.bytes} bytes, {tensor.gain!r} cycles less)"
            lines.append(f"stays in {tensor.memory}: {what} {gain}")
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """A JSON object for ``tilewright fuse --json``."""
        return {
            "network": self.network,
            "machine": self.machine,
            "search": self.search,
            "cycles": self.cycles,
            "hash": self.hash,
            "groups": [
                {"fusion": group.fusion, "kernels": list(group.kernels), "cycles": group.cycles}
                for group in self.groups
            ],
            "alone": [{"kernel": kernel, "cycles": cycles} for kernel, cycles in self.alone],
            "stays": [
                {
                    "tensor": tensor.tensor,
                    "memory": tensor.memory,
                    "readers": list(tensor.readers),
                    "bytes": tensor.bytes,
                    "gain_cycles": tensor.gain,
                }
                for tensor in self.stays
            ],
        }
