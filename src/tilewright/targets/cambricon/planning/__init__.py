"""Planning of ACC-C alone: blocks of channels, rows that roll, results in place."""
