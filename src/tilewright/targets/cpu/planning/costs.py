"""The costs of transfers between caches that planning assumes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class CacheCosts(BaseModel):
    """The part of cache transfers that does not overlap products, fitted to measured kernels.

    The defaults were fitted to an AMD processor whose last cache is near; targets know others.
    Planning alone uses them (targets/cpu/planning/cost.py, targets/cpu/planning/block_cost.py).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    usable: float = Field(default=0.8, gt=0, le=1)
    """Part of a cache that a kernel's working set may fill."""
    exposed: float = Field(default=0.1, ge=0, le=1)
    """Part, 0 to 1, of a time that does not overlap a greater one: of products, or of reading."""
    near: float = Field(default=0.1, ge=0, le=1)
    """Part of the time to read weights from the second cache, tile after tile, that does not
    overlap."""
    cold: float = Field(default=0.1, ge=0, le=1)
    """Part of the time to read weights from main memory that does not overlap."""
    crowded: float = Field(default=0.0, ge=0, le=1)
    """Part that each stream of weights beyond four adds to the time to read them from main memory:
    where one row of a matrix meets them, every vector of a register tile is a stream."""
    start_bytes: float = Field(default=800.0, ge=0, le=1e6)
    """Bytes that could be moved while the write of a separate piece of the result starts:
    swATOP's latency, and the wasted part of a transaction (Eq. 1)."""
    row_bytes: float = Field(default=0.0, ge=0, le=1e6)
    """Bytes that could be read beyond the second cache while the read of a separate part of a row
    starts, of inputs or of partial sums: the same latency, which prefetching does not hide."""
    block_usable: float = Field(default=0.4, gt=0, le=1)
    """Part of a cache that stays with a block of tiles while weights stream through it."""
    panels: float = Field(default=0.4, gt=0, le=1)
    """Part of the first cache that stays with panels of weights that are transformed beside
    products."""
    streamed: float = Field(default=0.3, ge=0, le=1)
    """Part, 0 to 1, of the time to read weights for the first time that products do not hide."""
    refetched: float = Field(default=0.3, ge=0, le=1)
    """Part of the time to read what the second cache did not keep of a block's scratch that does
    not hide behind products, beside what comes of the two overlapping."""
    pixels: float = Field(default=0.3, ge=0, le=2)
    """Part of the time to read transformed inputs from the second cache, as every block of output
    channels does, that does not hide."""
    read_again: float = Field(default=0.35, ge=0, le=1)
    """Part, not hidden, of the time in which further register tiles of a plane read transformed
    weights."""
    fetched: float = Field(default=0.5, ge=0, le=1)
    """Part of the time to read weights for the first time that does not hide where they are fetched
    ahead, to be transformed beside products."""
    beside: float = Field(default=0.5, ge=0, le=1)
    """Part of the time to transform weights beside products, or of these, that does not hide."""
    summed: float = Field(default=3.0, ge=0, le=100)
    """Transfers between the same of each byte of sums that products write for every block of input
    channels, and go on from."""
    rewritten: float = Field(default=3.0, ge=0, le=100)
    """Transfers between the first cache and the second of each byte of weights that are transformed
    beside products: it comes in, goes out, and comes in again."""
    written: float = Field(default=6.0, ge=0, le=100)
    """Transfers of each byte of scratch that transforms write beyond the second cache."""
    returned: float = Field(default=6.0, ge=0, le=100)
    """Transfers of each byte of scratch that products write, and the transform back reads: at least
    the line is fetched, written, and read again."""
