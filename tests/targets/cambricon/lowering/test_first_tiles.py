"""First tiles that load in the last tile of the kernel before: bit for bit, and sooner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.targets.cambricon.lowering.random_networks import exact, random_network

from tilewright.targets.cambricon.capabilities import CambriconMemory
from tilewright.targets.cambricon.lowering import kernel
from tilewright.targets.cambricon.lowering.first_tiles import Arrivals, FirstTiles
from tilewright.targets.cambricon.machine import MACHINE

MEMORIES = tuple(one.model_copy(update={"own": CambriconMemory()}) for one in MACHINE.memories)
PLAIN = MACHINE.model_copy(update={"memories": MEMORIES})
"""Nothing stays on the chip."""

DOUBLE = "greedy{start=granule buffers=2}"
"""A planner that times nothing."""


def arrived(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The roles of what loads early."""
    seen: set[str] = set()
    arrive = FirstTiles.arrive

    def watched(self: FirstTiles, *parts: Any) -> Arrivals:
        found = arrive(self, *parts)
        seen.update(self.operands[one].role for one in found.buffers)
        return found

    monkeypatch.setattr(FirstTiles, "arrive", watched)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 4, 8, 10, 11])
def test_networks_are_exact_and_faster(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images, biases and residuals; several inputs and outputs."""
    machine = PLAIN.with_values({"memory.vsm.bytes": 32 << 10})
    path = random_network(tmp_path / "net.onnx", seed)
    seen = arrived(monkeypatch)
    early = exact(path, tmp_path / "early", machine, DOUBLE).summary()["cycles"]
    assert "input" in seen
    monkeypatch.setattr(FirstTiles, "choose_opening", lambda *_: None)
    assert early < exact(path, tmp_path / "late", machine, DOUBLE).summary()["cycles"]


@pytest.mark.slow
@pytest.mark.parametrize("roles", [("input", "output"), ("output", "residual"), ()])
def test_residuals_arrive_where_they_are_read(
    roles: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In streams or not, they load early in the network of seed 4 alone, to a slot of their own."""
    monkeypatch.setattr(kernel, "THRIFT", ((roles, 12),))
    seen = arrived(monkeypatch)
    for seed in (0, 1, 2, 4):
        seen.clear()
        path = random_network(tmp_path / f"{seed}.onnx", seed)
        exact(path, tmp_path / f"{seed}", PLAIN, DOUBLE)
        assert ("residual" in seen) == (seed == 4 and bool(roles)), seed
