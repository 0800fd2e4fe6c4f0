"""The process that `wcsp` starts: a cost function network from arrays, searched by toulbar2, which prints as it goes.

    python wcsp_process.py FILE.npz BELOW SEED SECONDS

Only what costs less than BELOW is looked for (0: anything). It stands alone, so that nothing else is imported.
"""

import sys
from typing import Any

import numpy as np
import pytoulbar2

FORBIDDEN = 10**18


def search(path: str, below: str, seed: str, seconds: str) -> None:
    """Builds the network and searches, with virtual arc consistency at the root."""
    data: dict[str, Any] = dict(np.load(path, allow_pickle=False))
    network = pytoulbar2.CFN(int(below) or None, vac=1, seed=int(seed) + 1, verbose=0)
    network.Option.useRASPS = 1 - int(seed) % 2
    counts = data["counts"].tolist()
    for g, count in enumerate(counts):
        network.AddVariable(f"x{g}", range(count))
    unary, matrices = data["unary"].tolist(), data["matrices"].tolist()
    at = 0
    for g, count in enumerate(counts):
        network.AddFunction([g], unary[at : at + count])
        at += count
    at = 0
    for g, h in data["ends"].tolist():
        size = counts[g] * counts[h]
        entries = matrices[at : at + size]
        if any(entries):
            network.AddFunction([g, h], [entry if entry < FORBIDDEN // 2 else network.Top for entry in entries])
        at += size
    for place, slack in zip(data["places"].tolist(), data["slack"].tolist(), strict=True):
        terms = [(g, k, amount) for p, g, k, amount in data["rows"].tolist() if p == place]
        network.AddGeneralizedLinearConstraint(terms, "<=", slack)
    network.Solve(showSolutions=1, timeLimit=max(1, int(float(seconds))))
    sys.stdout.flush()


if __name__ == "__main__":
    search(*sys.argv[1:])
