"""Targets: one folder each; what turns planned kernels into a package that runs."""
