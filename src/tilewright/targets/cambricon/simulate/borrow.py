"""Arrays without owners for compiled code.

numba counts references to an array at every call and slice, atomically, which took half of the
simulator's time. An array without an owner has none to count for; it may live only as long as the
array that it is made of.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic


def _borrowed(_: Any, array: Any) -> Any:
    """The same contiguous array without an owner."""
    kind = types.Array(array.dtype, array.ndim, "C")

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        borrowed = context.make_array(kind)(context, builder)
        for field in ("data", "shape", "strides", "itemsize", "nitems"):
            setattr(borrowed, field, getattr(source, field))
        borrowed.meminfo, borrowed.parent = (context.get_constant_null(t) for t in OWNERS)
        return borrowed._getvalue()

    return kind(array), generated


OWNERS = types.MemInfoPointer(types.voidptr), types.pyobject

borrowed: Any = intrinsic(_borrowed)
