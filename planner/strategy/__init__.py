"""Layouts over a mesh, the strategies of an operation, what moves between two layouts, and what all of it costs."""
