"""Graph passes of ACC-C alone."""
