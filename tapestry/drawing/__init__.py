"""Drawings of programs as SVG and HTML, by our own code: no graphics library, nothing loaded from elsewhere."""
