"""The host's part of a package: C of the kernels that an accelerator leaves to its processor."""
