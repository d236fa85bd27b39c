"""Networks on a machine whose kernels hand on their results on the chip."""

from pathlib import Path

import pytest

from tests.end_to_end.end_to_end_models import ROOT, lenet, network, run_checked
from tests.slow import but_fast

FILE = ROOT / "examples" / "machines" / "fused.toml"
MODELS = {
    "lenet5": lenet,
    "squeezenet": lambda: network("squeezenet", 64),
    "resnet18": lambda: network("resnet18", 64),
    "mobilenet_v2": lambda: network("mobilenet_v2", 64),
}


@pytest.mark.parametrize("name", but_fast(MODELS, ["lenet5"]))
def test_networks_move_less_than_without_fusion(name: str, tmp_path: Path) -> None:
    """Bit for bit, fused and apart; fewer bytes pass main memory, in fewer cycles."""
    plain = tmp_path / "apart.toml"
    text = FILE.read_text()
    plain.write_text(text[: text.index("# Kernels that may hand on")])
    fused = run_checked(MODELS[name](), str(FILE), tmp_path)
    apart = run_checked(MODELS[name](), str(plain), tmp_path)
    together = [kernel for kernel in fused.profile.kernels if not kernel.on_host]
    assert len(together) < len([kernel for kernel in apart.profile.kernels if not kernel.on_host])
    one, other = fused.profile, apart.profile
    assert one.dram_bytes is not None
    assert other.dram_bytes is not None
    assert one.dram_bytes < other.dram_bytes
    assert one.cycles < other.cycles
