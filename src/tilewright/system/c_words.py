"""Words that no name in generated C may be."""

from __future__ import annotations

_WORDS = """
    alignas alignof asm auto bool break case catch char class const constexpr continue default
    delete do double else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new nullptr operator private protected public register restrict return
    short signed sizeof static static_assert struct switch template this thread_local throw true
    try typedef typeid typename typeof union unsigned using virtual void volatile while
    and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq
    abs assert complex erf errno exit exp fabs fmax fmin free imaginary log main malloc memcpy
    memset noreturn offsetof pow printf signal stderr stdin stdout sqrt tanh time linux unix
    BUFSIZ EOF FILE I INFINITY NAN NULL
"""

RESERVED = frozenset(_WORDS.split())
"""Words that mean something in C or C++, or in their most used headers."""
