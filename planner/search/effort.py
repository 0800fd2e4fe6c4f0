"""How much is tried of programs of which size, and what is worth being tried."""

# Transfers of values count fully, half, not at all (numerators over 2).
EXPOSED = (2, 1, 0)
# Of programs of no more operations far more is tried.
FEW = 20
# Programs of more operations are looked at in one view of overlap only.
MANY = 300
# What an answer that is shorter takes of the best at most.
WORTH = 0.999
