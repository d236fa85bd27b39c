"""The planners: a kernel and a machine in, a schedule out."""
