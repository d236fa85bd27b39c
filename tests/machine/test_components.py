"""Figures of memories from hwcomponents: a package of its interface stands for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.machine.components import KEYS, component_figure, parsed, with_figures
from tilewright.machine.energy import area_of, memory_figure
from tilewright.machine.load import load_machine

ROOT = Path(__file__).parents[2]
PACKAGE = """
class Model:
    def __init__(self, depth, width, tech_node, pair):
        self.bits, self.width, self.node, self.pair = depth * width, width, tech_node, pair
        self.leak_power, self.area = self.bits * 1e-9, self.bits * 1e-13

    def _energy(self, bits, scale):
        joules = scale * 1e-15 * bits * self.node / 45e-9 * (self.bits / 2**20) ** 0.5
        return (joules, 1e-9) if self.pair else joules

    def read(self, bits_per_action):
        return self._energy(bits_per_action, 1)

    def write(self, bits_per_action):
        return self._energy(bits_per_action, 2)


def get_model(name, attributes, required_actions=()):
    if name != "SRAM":
        raise ValueError(f"Component {name} is not supported by any models.\\nSupported: SRAM")
    assert list(required_actions) == ["read", "write"]
    known = dict(attributes)
    return Model(known["depth"], known["width"], known["tech_node"], known.get("pair", 0))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine file with a component, and the package that knows it."""
    (tmp_path / "hwcomponents.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hwcomponents", raising=False)
    return machine_file(tmp_path, "SRAM tech_node=22.5e-9 width=128 pair=1")


def machine_file(folder: Path, component: str) -> Path:
    text = (ROOT / "examples" / "machines" / "small-npu.toml").read_text()
    path = folder / "npu.toml"
    name = next(
        m.name for m in load_machine(ROOT / "examples/machines/small-npu.toml").memories[1:]
    )
    path.write_text(f"{text}\n")
    lines = path.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"memory.{name} = {{"))
    lines[at] = lines[at].replace("{", f'{{ component = "{component}",', 1)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_figures_follow_a_memory(installed: Path) -> None:
    machine = load_machine(installed)
    memory = next(m for m in machine.memories if m.component)
    assert memory.bytes is not None
    bits = memory.bytes * 8
    wanted = 8 * 0.5 * (bits / 2**20) ** 0.5 * 1e-3
    figures = [memory_figure(memory, key) for key in KEYS]
    assert figures == pytest.approx([wanted, 2 * wanted, bits * 1e-6, bits * 1e-7])
    assert area_of(machine)[memory.name] == pytest.approx(bits * 1e-7)
    larger = machine.with_values({f"memory.{memory.name}.bytes": 4 * memory.bytes})
    assert memory_figure(larger.memory(memory.name), "read_pj") == pytest.approx(2 * wanted)
    stated = machine.with_values({f"memory.{memory.name}.read_pj": 3.0})
    assert memory_figure(stated.memory(memory.name), "read_pj") == 3.0
    plain = with_figures(stated).memory(memory.name)
    assert plain.component is None
    assert [memory_figure(plain, key) for key in KEYS] == pytest.approx([3.0, *figures[1:]])


def test_a_package_is_opened_without_hwcomponents(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ROOT / "examples" / "lenet5" / "lenet5.onnx"
    made = tilewright.compile(model, str(installed), directory=tmp_path / "package")
    energy = made.summary()["energy_pj"]
    (tmp_path / "hwcomponents.py").unlink()
    monkeypatch.setitem(sys.modules, "hwcomponents", None)
    assert tilewright.Executable.load(tmp_path / "package").summary()["energy_pj"] == energy


@pytest.mark.parametrize(
    ("component", "said"),
    [
        ("EDRAM tech_node=1", "not supported by any models"),
        ("SRAM tech_node", "'tech_node' is no attribute"),
        ("SRAM width=0", "a width of 0 bits"),
    ],
)
def test_what_no_model_knows_is_refused(installed: Path, component: str, said: str) -> None:
    with pytest.raises(TilewrightError, match="component") as error:
        _ = resolve(str(machine_file(installed.parent, component)))
    assert said in str(error.value)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents", None)
    with pytest.raises(TilewrightError, match="pip install hwcomponents"):
        _ = resolve(str(machine_file(tmp_path, "SRAM tech_node=10e-9")))


def test_texts_of_components() -> None:
    assert parsed("SRAM width=32 tech_node=7e-9 type=LPDDR4") == (
        "SRAM",
        {"width": 32, "tech_node": 7e-9, "type": "LPDDR4"},
    )
    memory = load_machine(ROOT / "examples" / "machines" / "small-npu.toml").memories[0]
    assert component_figure(memory, "read_pj") is None
