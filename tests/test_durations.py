"""The table of the tests' durations adds up what pytest has written."""

from pathlib import Path

from tests.durations import table, times_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.tile.test_build" name="test_a[1]" time="2.5"/>
<testcase classname="tests.targets.cpu.test_tiles" name="test_b" time="1.25"/>
<testcase classname="tests.targets.cpu.test_words" name="test_c" time="4"/>
</testsuite></testsuites>"""


def test_table(tmp_path: Path) -> None:
    file = tmp_path / "test.xml"
    file.write_text(REPORT)
    rows = [line.split() for line in table(times_of([file])).splitlines() if line]
    assert rows[0] == ["7.8", "s", "3", "all", "tests"]
    assert rows[1:3] == [["5.2", "s", "2", "targets/cpu"], ["2.5", "s", "1", "tile"]]
    assert [row[2].split("::")[1] for row in rows[3:]] == ["test_c", "test_a[1]", "test_b"]
