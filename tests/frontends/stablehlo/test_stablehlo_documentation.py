"""docs/stablehlo.md names every operation and every code of the importer, and no others."""

import re
from pathlib import Path

import tilewright.frontends.stablehlo as package
from tilewright.frontends import files
from tilewright.frontends.stablehlo.control import CONTROL, CUSTOM
from tilewright.frontends.stablehlo.operators import RULES

TEXT = (Path(__file__).parents[3] / "docs" / "stablehlo.md").read_text(encoding="utf-8")


def rows(title: str) -> list[str]:
    section = TEXT.split(f"## {title}")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


def test_operations():
    assert sorted(rows("Operations")) == sorted({*RULES, *CONTROL})
    assert set(CUSTOM.values()) <= set(RULES)


def test_codes():
    paths = sorted(Path(package.__file__).parent.rglob("*.py"))
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    used = set(re.findall(r'"(stablehlo-[a-z-]+)"', source))
    # The worker says the last word alone.
    used |= {f"stablehlo-{word}" for word in re.findall(r'Refused\("([a-z-]+)"', source)}
    shared = Path(files.__file__).read_text(encoding="utf-8")
    used |= {f"stablehlo-{word}" for word in re.findall(r'"\{family\}-([a-z-]+)"', shared)}
    assert set(rows("Refusals")) == used
