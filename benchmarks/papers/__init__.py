"""Experiments of the papers, run again: theirs beside ours."""
