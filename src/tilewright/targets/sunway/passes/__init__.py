"""Graph passes of SW26010's machines alone."""
