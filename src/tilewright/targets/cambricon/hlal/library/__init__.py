"""The built-in macros and blocks, as HLAL texts: one file a topic."""
