"""Planning of ACC-C alone: blocks of channels."""
