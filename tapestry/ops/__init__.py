"""The standard operations, one family a file, each declared once in index notation."""
