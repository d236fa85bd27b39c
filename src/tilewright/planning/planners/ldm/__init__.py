"""The ``ldm`` planner: swTVM's tiles, orders and parts for memories that software manages."""
