"""The families of the targets that this project brings, whatever else is installed or loaded."""

from tilewright.machine.records import Record, families, record_class


def bundled_records(kind: type[Record]) -> dict[str, type[Record]]:
    """The record of a kind that each bundled family has."""
    known = {family: record_class(kind, family) for family in families(kind)}
    return {
        family: record
        for family, record in known.items()
        if record is not None and record.__module__.startswith("tilewright.")
    }
