"""The NumPy device: compute tasks as NumPy calls on the memory of a rank."""
