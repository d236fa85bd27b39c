"""The CPU target: readable C without dependencies, built by the system's compiler."""
