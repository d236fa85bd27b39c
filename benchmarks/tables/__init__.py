"""One module a table: its networks, and ``tables(networks)``."""
