"""CCE C read back into programs: the subset that emit.py writes."""
