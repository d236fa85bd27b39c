"""From tile programs to instructions of the core; see network.py."""
