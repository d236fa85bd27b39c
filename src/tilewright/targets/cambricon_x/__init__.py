"""The dense Cambricon-X accelerator, simulated."""
