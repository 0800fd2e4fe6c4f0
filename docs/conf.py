"""The site of the documentation: `make docs` writes build/site/."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Tapestry"
author = "the Tapestry authors"
version = release = version_of("tapestry-planner")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Tapestry"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["img"]
# Docstrings are prose with code in backticks, as in these pages.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# The pages lead to files of the repository; on the site these links stay as they are written.
suppress_warnings = ["myst.xref_missing"]
