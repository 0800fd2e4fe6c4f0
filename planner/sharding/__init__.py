"""Sharding as one assignment problem: its decisions, what they cost, the answer read back, bounds and shortages."""
