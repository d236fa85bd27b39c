"""Passes on tile programs."""
