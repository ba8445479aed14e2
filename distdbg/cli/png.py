"""Draw an SVG picture as PNG with resvg, an optional extra."""

from __future__ import annotations

from distdbg.errors import ToolMissing, install_extra

#: Two dots for each unit of the picture: sharp on a slide.
_ZOOM = 2.0
_LETTER = '<text x="2" y="15" style="font:11px monospace">W</text>'
#: What `monospace` stands for fontconfig says, which many containers have fonts without.
_FAMILIES = (None, "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "Ubuntu Mono", "Menlo", "Consolas")


def png(svg: str) -> bytes:
    """Raises ToolMissing without resvg-py, and on a machine without fonts, where resvg leaves the letters out."""
    try:
        import resvg_py
    except ImportError:
        raise ToolMissing(
            "a PNG needs resvg-py, which is not installed",
            f"Install it ({install_extra('png')}), or take --svg, which any browser shows.",
        ) from None
    empty = resvg_py.svg_to_bytes(svg_string=_sheet(""))
    for family in _FAMILIES:
        if resvg_py.svg_to_bytes(svg_string=_sheet(_LETTER), monospace_family=family) != empty:
            return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM, monospace_family=family))
    raise ToolMissing(
        "this machine has no font to write with", "Install one (fonts-dejavu-core on Debian), or take --svg."
    )


def _sheet(inner: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{inner}</svg>'
