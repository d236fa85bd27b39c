"""Heron, a made-up accelerator that is programmed in C: asynchronous copies, waits, intrinsics."""
