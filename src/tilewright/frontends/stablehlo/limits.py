"""Bounds on what a program may ask for, so that a hostile file costs neither time nor memory."""

MAX_SECONDS = 300
"""Processor time that parsing may take."""

MAX_DOCUMENT_BYTES = 2**28
"""The size limit of the parsed program without its constants, in bytes."""

MAX_OPERATIONS = 50_000
"""Operations of a program, and operations taken once calls and loops are written out."""

MAX_DEPTH = 32
"""The greatest depth of nested calls and loops."""

MAX_FOLDED_ELEMENTS = 2**24
"""Elements of one constant that evaluating constants at import makes."""
