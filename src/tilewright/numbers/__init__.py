"""Number formats of a network: the samples and ranges from which scales and points are chosen."""
