"""The pipeline of a model, from its file to a package: stages, their state, the public entry."""
