"""StableHLO programs, as JAX exports them, become networks."""

from tilewright.frontends.stablehlo.importer import import_stablehlo
from tilewright.frontends.stablehlo.reader import Exported

__all__ = ["Exported", "import_stablehlo"]
