"""Bars beside each other as an SVG: the page's pictures, made of nothing but text.

PROMISE  The same bars give the same bytes.  Colours are the reader's: dark on light, light on dark, on a card of its
         own, so that a page of either kind can hold it; ours and the peers' differ by hue and by brightness.  A range
         is drawn over its bar; a bar that was not measured says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 720
LABEL_WIDTH = 230
VALUE_WIDTH = 120
BAR_HEIGHT = 20
STEP = 30
TOP = 48

STYLE = (
    ".card{fill:#ffffff;stroke:#d0d7de}"
    "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:14px}.ours{fill:#0b7285}"
    ".peer{fill:#adb5bd}.range{stroke:#24292f;stroke-width:1.5}.axis{stroke:#868e96}"
    "@media(prefers-color-scheme:dark){.card{fill:#161b22;stroke:#30363d}text{fill:#e6edf3}.ours{fill:#3bc9db}.peer{fill:#6c757d}.range{stroke:#e6edf3}}"
)


@dataclass(frozen=True)
class Drawn:
    """One bar: its label, its value and range, and whether it is ours."""

    label: str
    value: float | None
    lowest: float | None
    highest: float | None
    shown: str
    ours: bool


def bars(title: str, drawn: Sequence[Drawn]) -> str:
    """The picture.  All bars begin at zero, and the longest range ends at the right."""
    most = max((each.highest or each.value or 0.0 for each in drawn), default=0.0) or 1.0
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    height = TOP + STEP * len(drawn) + 12
    told = "; ".join(f"{each.label} {each.shown}" for each in drawn)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(f"{title}: {told}", {chr(34): "&quot;"})}">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="14" y="26">{escape(title)}</text>',
        f'<line class="axis" x1="{LABEL_WIDTH}" y1="{TOP - 8}" x2="{LABEL_WIDTH}" y2="{height - 14}"/>',
    ]
    for number, each in enumerate(drawn):
        y = TOP + number * STEP
        middle = y + BAR_HEIGHT / 2
        lines.append(f'<text x="{LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">{escape(each.label)}</text>')
        end = float(LABEL_WIDTH)
        if each.value is not None:
            width = room * each.value / most
            kind = "ours" if each.ours else "peer"
            lines.append(
                f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
            )
            end += width
        if each.lowest is not None and each.highest is not None and each.highest > each.lowest:
            left, right = (LABEL_WIDTH + room * at / most for at in (each.lowest, each.highest))
            lines.append(f'<line class="range" x1="{left:.1f}" y1="{middle:g}" x2="{right:.1f}" y2="{middle:g}"/>')
            end = max(end, right)
        lines.append(f'<text x="{end + 8:.1f}" y="{y + 15}">{escape(each.shown)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
