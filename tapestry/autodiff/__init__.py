"""Derivatives: a program's gradient is a program again, made of operations that the rest of Tapestry knows already."""
