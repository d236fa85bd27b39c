"""What code generators of several targets share."""
