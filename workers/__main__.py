"""One rank of a launch: `-m torch.distributed.run ... -m tapestry.workers FOLDER DEVICE` (`engines.launch`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .engines.engine import Settings
from .engines.launch import serve


def main(arguments: list[str]) -> None:
    """Serve the folder. After an error the process ends at once: threads may still wait for ranks that are gone."""
    try:
        serve(Path(arguments[0]), Settings(arguments[1], poison="--poison" in arguments[2:]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
