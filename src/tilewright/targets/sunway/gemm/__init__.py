"""Products on CPEs: one template of instructions, as C, as a listing, and as cycles."""
