"""What every test of the project shares: which folders pytest walks, and how hypothesis draws."""

import os

from hypothesis import settings

# The code of these folders is reached through `tapestry/`, once (docs/decisions/0001-symlinked-packages.md).
collect_ignore = ["planner", "kernels", "workers", "build"]

# Times say more about the machine than about the code; the same draws every time, except when fuzzing.
settings.register_profile("tapestry", deadline=None, derandomize="TAPESTRY_FUZZ" not in os.environ)
settings.load_profile("tapestry")
