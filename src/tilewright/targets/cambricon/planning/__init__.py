"""Planning of ACC-C alone: blocks of channels, results in place."""
