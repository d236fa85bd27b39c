"""C from tile programs, and what it takes to run that C on the host."""
