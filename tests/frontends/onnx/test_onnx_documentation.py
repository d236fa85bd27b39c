"""docs/onnx.md names every operator and every code of the importer, and no others."""

import re
from pathlib import Path

import tilewright.frontends
from tilewright.frontends import files
from tilewright.frontends.onnx.microsoft import CONTRIBUTED
from tilewright.frontends.onnx.operators import RULES

TEXT = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text(encoding="utf-8")


def test_operators():
    listed = TEXT.split("## Operators")[1].split(":", 1)[1].split("\n\n")[0]
    names = re.sub(r"\([^)]*\)", "", listed).removesuffix(".").split(",")
    assert sorted(name.strip() for name in names) == sorted(RULES)


def test_operators_of_onnx_runtime():
    section = TEXT.split("## ONNX Runtime's own operators")[1].split("Imported are", 1)[1]
    listed = section.split(";")[0].replace("\n", " ").replace(" and ", ", ")
    assert [name.strip() for name in listed.split(",")] == sorted(CONTRIBUTED)


def test_codes():
    folder = Path(tilewright.frontends.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    used = set(re.findall(r'"((?:onnx|model)-[a-z-]+)"', source))
    shared = Path(files.__file__).read_text(encoding="utf-8")
    used |= {f"onnx-{word}" for word in re.findall(r'"\{family\}-([a-z-]+)"', shared)}
    assert set(re.findall(r"^\| `([a-z-]+)`", TEXT, re.MULTILINE)) == used
