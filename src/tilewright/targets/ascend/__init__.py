"""DaVinci cores (Ascend): machines, planners, kernels in CCE C, and a host on which they run."""
