"""What ties the rooms together: decide, lower, simulate, keep the best."""
