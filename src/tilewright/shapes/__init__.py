"""Shapes whose dims may be free: how they are written, settled for a compile, met by a run."""
