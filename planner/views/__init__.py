"""Pictures of plans: shard maps, timelines, the graph with its strategies, one HTML page, trace files. NumPy and the standard library only."""
