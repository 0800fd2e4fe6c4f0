"""The code of these folders is reached through `tapestry/`, once (docs/decisions/0001-symlinked-packages.md)."""

collect_ignore = ["planner", "kernels", "workers", "build"]
