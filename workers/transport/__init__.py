"""How elements get from the memory of one rank to that of another.

`movement` says what moves, `transport` is the interface, `in_process` serves ranks of one process (`piecewise`: in
single steps, for the adversarial order), `torch_distributed` serves one rank a process.
"""
