"""All tests: generated examples are the same in every run.

Look for new ones with ``pytest --hypothesis-profile=explore``.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")
