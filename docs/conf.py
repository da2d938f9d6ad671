"""Sphinx configuration: MyST markdown, warnings are errors (see `make docs`)."""

project = "reticent"
author = "The reticent authors"
extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "generated"]
html_theme = "furo"
html_title = "reticent"
nitpicky = True
