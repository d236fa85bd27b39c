"""Tern, a made-up processor: words of 192 bytes, order by flags, two levels of memory."""
