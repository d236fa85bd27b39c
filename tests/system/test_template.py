"""Templates: values, and parts under conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.system.template import filled

TEXT = """\
int @name@_run(@kind@ x);
@lines@
@if bare
/* bare@if not */
@if many
many
@else
one
@end
@end
@if not bare
$(CC) $< -o $@
@end
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    (tmp_path / "a.h.in").write_text(TEXT)
    return tmp_path / "a.h.in"


def test_values_stand_for_names_and_are_not_read_again(template: Path) -> None:
    text = filled(template, name="net", kind="@lines@", lines="a\nb", bare=False, many=0)
    assert text == "int net_run(@lines@ x);\na\nb\n$(CC) $< -o $@\n"


def test_parts_nest_and_empty_lines_go(template: Path) -> None:
    for many, line in ((0, "one"), (2, "many")):
        text = filled(template, name="n", kind="int", lines="", bare=True, many=many)
        assert text == f"int n_run(int x);\n/* bare@if not */\n{line}\n"


def test_a_missing_value_is_an_error(template: Path) -> None:
    with pytest.raises(KeyError):
        filled(template, name="n", kind="int", bare=True, many=1)
