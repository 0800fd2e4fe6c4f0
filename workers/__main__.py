"""One rank of a launch: `-m torch.distributed.run ... -m tapestry.workers FOLDER DEVICE` (`engines.launch`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .engines.engine import Settings
from .engines.launch import serve


def _settings(arguments: list[str]) -> Settings:
    patience = float(arguments[arguments.index("--patience") + 1])
    repeat = int(arguments[arguments.index("--repeat") + 1])
    return Settings(arguments[0], poison="--poison" in arguments, patience_s=patience, repeat=repeat)


def main(arguments: list[str]) -> None:
    """Serve the folder. After an error the process ends at once: threads may still wait for ranks that are gone."""
    try:
        serve(Path(arguments[0]), _settings(arguments[1:]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
