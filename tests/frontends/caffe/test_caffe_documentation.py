"""docs/caffe.md names every layer and every code of the importer, and no others."""

import re
from pathlib import Path

import tilewright.frontends.caffe
from tilewright.frontends import files
from tilewright.frontends.caffe.inputs import SOURCES
from tilewright.frontends.caffe.operators import RULES

TEXT = (Path(__file__).parents[3] / "docs" / "caffe.md").read_text(encoding="utf-8")


def test_layers():
    told = TEXT.split("## Layers")[1].split("Where Caffe differs")[0]
    computed, inputs = re.sub(r"\([^)]*\)", "", told).split("Inputs:")
    names = [name.strip(" \n.") for name in computed.split(":", 1)[1].split(",")]
    assert sorted(names) == sorted(RULES)
    assert set(re.findall(r"\b[A-Z]\w+", inputs)) == SOURCES


def test_codes():
    folder = Path(tilewright.frontends.caffe.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    used = set(re.findall(r'"(caffe-[a-z-]+)"', source))
    shared = Path(files.__file__).read_text(encoding="utf-8")
    used |= {f"caffe-{word}" for word in re.findall(r'"\{family\}-([a-z-]+)"', shared)}
    assert set(re.findall(r"^\| `([a-z-]+)`", TEXT, re.MULTILINE)) == used
