"""From tile programs to statements: real loops over matrix and vector instructions."""
