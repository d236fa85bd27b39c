"""Text in AscendNPU-IR's public dialect HIVM, for Ascend 910B; see emit.py."""
