"""From tile programs to athread C."""
