"""From tile programs to instructions: columns for every execution of every operation at once."""
