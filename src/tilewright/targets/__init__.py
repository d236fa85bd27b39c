"""Targets, a folder for each: the code that turns planned kernels into a package that runs."""
