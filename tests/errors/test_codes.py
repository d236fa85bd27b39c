"""Every code's first word is explained in docs/errors.md, and nothing else is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = re.compile(r'(?:refuse|Problem)\(\s*"([a-z]+)(?:-[a-z]+)+"')


def test_codes_are_documented() -> None:
    used = {
        match[1]
        for path in (ROOT / "src").rglob("*.py")
        for match in CODE.finditer(path.read_text())
    }
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([a-z]+)-`", row)}
    assert used == told
