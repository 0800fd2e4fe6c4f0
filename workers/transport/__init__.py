"""How elements get from the memory of one rank to that of another."""
