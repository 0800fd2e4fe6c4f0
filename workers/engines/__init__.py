"""How the ranks of a plan are run: all in this process, or one process each under torchrun."""
