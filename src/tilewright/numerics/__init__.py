"""Numerics: what operations mean, as pure array functions.

The graph interpreter, the functional simulators and the tests' interpreter of tile programs share
them, so that what they compute agrees bit for bit: ``reference`` for float32 and for exact
integers, ``fixed`` for fixed point, ``tables`` for functions that fixed point interpolates,
``pointwise`` for maps by name.
"""
