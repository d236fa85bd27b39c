"""Chains: kernels planned as one, which compute on the chip what they read."""
