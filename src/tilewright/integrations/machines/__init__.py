"""Other tools' descriptions of hardware as machine files.

``import_machine`` reads ZigZag's accelerators (with a mapping), and architectures of AccelForge and
Timeloop, into one form (hierarchy.py), of which it makes a machine file (described.py). All that a
machine file cannot say, and all that was assumed, is listed.
"""

from tilewright.integrations.machines.imported import Imported, import_machine

__all__ = ["Imported", "import_machine"]
