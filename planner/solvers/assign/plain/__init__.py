"""Engines for plain problems too wide for elimination: tens of thousands of nodes, edges and limits, nothing else.

The planner's own problems have supplies and prices and end before these. They are for sharding problems that others
pose, such as the contest's (`iopddl.py`), which `tapestry bench iopddl` reads.
"""
