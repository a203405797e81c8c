"""Sphinx: `make docs`."""

from __future__ import annotations

import os
import re

os.environ.setdefault("MPLBACKEND", "Agg")

import eckart

project = "eckart"
author = "The eckart developers"
copyright = "the eckart developers"
version = release = eckart.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst"]
source_suffix = {".rst": "restructuredtext"}
# the tables of benchmarks/README.md are included below a title of their own
suppress_warnings = ["myst.header"]
templates_path = ["_templates"]

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Fitted attributes"]
add_module_names = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples", "../src/eckart/learn/lessons"],
    "gallery_dirs": ["gallery", "learn"],
    "filename_pattern": r"plot_",
    "ignore_pattern": r"demo\.py",
    "subsection_order": [
        *(f"../examples/{verb}" for verb in ("reduce", "complete", "explain", "embed")),
        "*",
    ],
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (800, 560),  # shown at half that size: sharp on dense screens
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "capture_repr": (),
    "remove_config_comments": True,
    "write_computation_times": False,
    "show_memory": False,
    "doc_module": ("eckart",),
    "backreferences_dir": None,
}

html_title = "eckart"
html_theme = "pydata_sphinx_theme"
html_show_sourcelink = False
html_sidebars = {
    "**": ["globaltoc.html"]
    # all pages by their groups: the theme's own list is empty for pages that have no pages below
    # them
}
html_theme_options = {
    "navbar_center": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def tidy(app, what, name, obj, options, lines):
    """Before napoleon: several attributes on a line become a definition list, a doctest after the
    parameters gets its heading, an author's initial ("C. Eckart") is not an enumerated list, |t -
    p| is no substitution and a name that ends in _ no link."""
    out: list[str] = []
    # methods inherited from scikit-learn refer to pages and words of its own documentation
    lines[:] = [
        re.sub(r":(?:ref|term):`([^`<]*[^`< ])(?: *<[^>]*>)?`", r"\1", line) for line in lines
    ]
    if name.startswith("eckart.metrics"):
        lines[:] = [
            line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|")
            for line in lines
        ]
    lines[:] = ["Parameters" if line.startswith("Parameters (") else line for line in lines]
    section, names = "", ""
    for line, after in zip(lines, [*lines[1:], ""]):
        if line and after and set(after) == {"-"}:
            section = line
            out.append("Fitted attributes" if section == "Attributes" else line)
        elif section == "Attributes" and line and (names or line[0] not in " -"):
            names += line.strip() if names else line
            if names.endswith(",") and " : " not in names:
                names += " "
                continue
            terms, _, words = names.partition(" : ")
            out += ["", ", ".join(f"``{term.strip()}``" for term in terms.split(","))]
            words = re.sub(r"(?<![`\w])(\w+_)(?![`\w])", r"``\1``", words)
            out += (
                [f"    {words}"] if words else [] if after.startswith(" ") else ["    Of the fit."]
            )
            names = ""
        elif line.startswith(">>>") and section in ("Parameters", "Returns"):
            section = "Examples"
            out += ["Examples", "--------", line]
        else:
            out.append(
                "-" * 17
                if out and out[-1] == "Fitted attributes"
                else re.sub(r"^([A-Z]\. )", r"\\\1", line)
            )
    lines[:] = out


def setup(app):
    # sphinx-mathjax-offline copies MathJax into _static. SVG output needs no fonts, which browsers
    # refuse to load for some local files.
    app.config.mathjax_path = "mathjax/tex-svg.js"
    app.connect("autodoc-process-docstring", tidy, priority=400)
