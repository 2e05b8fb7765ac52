"""Matplotlib figures as inline SVG that a strict content policy accepts.

No style attributes or elements (a policy with hashes only blocks them), no metadata, no date,
ids unique within the page, a title and a description for readers who cannot see the picture.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
# Presentation attributes of SVG 1.1 that matplotlib writes into style attributes.
KEPT = frozenset(
    {"fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity",
     "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin",
     "stroke-miterlimit", "opacity", "text-anchor", "font-size", "font-family", "font-weight",
     "font-style"}
)  # fmt: skip
FONT = re.compile(r"(?:(?P<weight>bold|[1-9]00) )?(?P<size>[\d.]+)px .*")
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "evalharness",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.linewidth": 0.8,
    "xtick.color": "#3b4149",
    "ytick.color": "#3b4149",
    "text.color": "#1d2127",
    "axes.labelcolor": "#3b4149",
}


def inline_svg(figure: Figure, *, name: str, title: str, description: str) -> Markup:
    """Return the figure as an <svg> element; `name` (letters, digits, dashes) prefixes its ids."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        _plain_attributes(element, name)
    for attribute in ("width", "height"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    root.set("stroke-linejoin", "round")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        label = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": f"{name}-{tag}"})
        label.text = text
        root.insert(place, label)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _plain_attributes(element: ElementTree.Element, name: str) -> None:
    style = element.attrib.pop("style", "")
    for key, value in _declarations(style):
        element.set(key, value)
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == f"{{{XLINK}}}href" and value.startswith("#"):
            del element.attrib[key]
            element.set("href", f"#{name}-{value[1:]}")
        elif value.startswith("url(#"):
            element.set(key, f"url(#{name}-{value[5:]}")


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":
            found = FONT.fullmatch(value)
            if found:
                yield "font-size", found["size"]
                if found["weight"]:
                    yield "font-weight", found["weight"]
        elif key in KEPT:
            yield key, value
