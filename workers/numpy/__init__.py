"""The NumPy device: compute tasks as NumPy calls on the memory of a rank.

A task is bound in passes, each with data of its own:

    Evaluation ──shards──► groups of Pieces ──choosing──► Steps ──binding──► Runner

`shards` takes the points apart into boxes, `choosing` cuts these into tiles and says how each is computed, `binding`
makes views, calls and temporaries of that. Below the passes stand the ways of computing (`contraction`, `attention`,
`padding`, `folds`, `maps`), and below these the pieces and the evaluation of expressions. A module imports only what
stands below it, which the contract of import-linter in pyproject.toml lists in order.
"""
