"""The positions of transfers in a loop nest, by swTVM's algorithms 3 and 4.

A nest is a list of loop variables, outermost first. Of every tensor two sets are known: the
variables on which its subscripts depend, and those of them that run within its buffer, whose range
the buffer holds. Algorithm 3 walks the nest inwards: a transfer stands before the first loop where
every variable of the tensor that does not run within its buffer is settled. What is loaded there is
loaded before that loop, what is written there is written after it.

The printed line 16 tests ``iter in Sub and iter not in Sub``; read here as "in the tensor's
variables, and not in its buffer's", as the text has it.

The pass ``place-moves`` (tile/passes/place_moves.py) finds the same places in tile programs, in
which the loops within buffers are implied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.errors import refuse
from tilewright.planning.domain import Affine

Subscripts = Sequence[Affine]
"""One expression for each dim of a tensor."""


def correlated(subscripts: Subscripts, variables: Collection[str]) -> frozenset[str]:
    """Return the variables on which a tensor's subscripts depend (algorithm 4)."""
    return frozenset(
        variable for subscript in subscripts for variable in subscript.dims if variable in variables
    )


def transfer_places(
    nest: Sequence[str],
    every: Mapping[str, frozenset[str]],
    buffered: Mapping[str, frozenset[str]],
) -> dict[str, int]:
    """By tensor, how many loops of the nest stand around its transfers (algorithm 3).

    ``every`` and ``buffered`` have each tensor's variables, and those that run within its buffer.
    Refuses (``schedule-order``) a loop within a buffer that stands outside of a loop that changes
    what the buffer holds.
    """
    places: dict[str, int] = {}
    left = {name: set(variables) for name, variables in every.items()}
    for number, variable in enumerate(nest):
        for name in [n for n in left if left[n] <= buffered[n]]:
            places[name] = number
            del left[name]
        for name, variables in left.items():
            if variable not in variables:
                continue
            if variable in buffered[name]:
                waiting = ", ".join(v for v in nest[number:] if v in variables - buffered[name])
                raise refuse(
                    "schedule-order",
                    f"the loop over {variable} runs within the buffer of {name}, and stands "
                    f"outside of the loop over {waiting}, which changes what that buffer holds",
                    name,
                    f"order the loop over {variable} within that over {waiting}",
                )
            variables.remove(variable)
    return places | dict.fromkeys(left, len(nest))
