"""`python -m tapestry`: the command line, where its script is not on the path."""

from .planner.cli import main

if __name__ == "__main__":
    main()
