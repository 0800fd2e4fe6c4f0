"""Solvers that know nothing of tensors: assignment of options, packing of buffers."""
