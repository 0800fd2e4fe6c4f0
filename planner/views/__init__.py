"""Pictures of plans: shard maps, timelines, the graph with its strategies, memory, one HTML page, trace files."""
