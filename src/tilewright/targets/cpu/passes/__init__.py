"""Graph passes for what C of the cpu target cannot say."""
