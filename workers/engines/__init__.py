"""How the ranks of a plan are run. `engine` is the interface.

`local` runs them all in this process, by a fixed `order` or an `adversary`; `torchrun` has one process a rank
(`process`, `group`), in a torchrun of the user's or in one that `launch` starts and waits for.
"""
