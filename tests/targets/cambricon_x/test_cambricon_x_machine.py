"""The description of dense ACC-X against the published figures."""

from tilewright.targets.cambricon_x.machine import MACHINE


def test_buffers_and_bandwidth_are_those_published() -> None:
    sizes = {memory.name: memory.bytes for memory in MACHINE.memories}
    assert (sizes["nbin"], sizes["nbout"], sizes["sb"]) == (8192, 8192, 16 * 2048)
    assert sizes["dram"] is None
    assert MACHINE.clock_hz == 1e9
    for move in MACHINE.moves:
        assert move.bytes_per_cycle * MACHINE.clock_hz == 128e9
        assert move.latency / MACHINE.clock_hz == 100e-9


def test_every_operand_has_a_path_from_main_memory() -> None:
    for primitive in MACHINE.primitives:
        for role, storage in primitive.operands.items():
            ends = (storage.memory, "dram") if role == "output" else ("dram", storage.memory)
            assert MACHINE.move(*ends).engine == ("store" if role == "output" else "load")


def test_names_are_unique() -> None:
    operations = [name for primitive in MACHINE.primitives for name in primitive.operations]
    assert len(operations) == len(set(operations))
