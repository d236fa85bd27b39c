"""C that calls a machine's own functions, and these functions for the host."""
