"""Reports: where nodes run and why, how results differ, where memory goes."""
