"""The embedded language: index notation, tensor handles, tracing, `@tp.op` and `@tp.program`."""
