"""Arrays without owners for compiled code.

numba counts references to an array at every call and slice, atomically, which took half of the
simulator's time. An array made of a pointer has no owner to count for; it may live only as long as
the array that it is made of.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic

from tilewright.simulate.compiled import compiled_together
from tilewright.targets.cambricon.simulate.state import Array


def _typed(_: Any, array: Any) -> Any:
    """The address of an array's first element, typed."""

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generated


# numba's own types say less than these two can do.
_pointer: Any = intrinsic(_typed)
_numba: Any = numba


@compiled_together
def borrowed(array: Array) -> Array:
    """The same contiguous array without an owner."""
    return _numba.carray(_pointer(array), array.shape)
