"""Rules by which the exact allocator's search chooses what comes next (choices.py has them).

FEWEST, SHORTEST, LOWEST and FULLEST fill valleys, and name the valley that is filled next: with the
fewest choices, over the fewest sections, with the lowest floor, with the fewest bytes to lose.
UPWARDS places the lowest buffer next.
"""

FEWEST, SHORTEST, LOWEST, FULLEST, UPWARDS = RULES = range(5)
