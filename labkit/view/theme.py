"""How each kind of span looks: the one table that plotly and the players draw from.

In: nothing. Out: `LOOKS` (name, short name, fills, pattern), the text colours that read on them, a plotly template.

The hues follow Okabe and Ito's colour-blind safe set. Because hue alone is not enough, spans that lie side by side also
differ in lightness (forward dark, backward light) or in pattern: in a grey print, or for any eye, the picture reads.
"""

from dataclasses import asdict, dataclass
from typing import Literal

import plotly.graph_objects as go

from labkit.event import Kind

Pattern = Literal["solid", "stripes", "bars", "dots", "grid", "hatch"]
Theme = Literal["light", "dark"]

INK = "#0b1220"
PAPER = "#ffffff"
FONT = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif'


@dataclass(frozen=True)
class Look:
    """How one kind of span is drawn, in both themes."""

    name: str
    label: str  # in legends and tooltips
    short: str  # inside a span, before the microbatch: F3
    light: str  # fill on a light page
    dark: str  # fill on a dark page
    pattern: Pattern = "solid"

    def fill(self, theme: Theme) -> str:
        return self.light if theme == "light" else self.dark

    def text(self, theme: Theme) -> str:
        """The text colour that reads on the fill."""
        return text_on(self.fill(theme))


LOOKS = (
    Look("forward", "forward", "F", light="#0067a8", dark="#4f9adb"),
    Look("recompute", "recompute", "R", light="#8cc4ea", dark="#a9d3f5", pattern="stripes"),
    Look("backward", "backward", "B", light="#efa51f", dark="#ffc34d"),
    Look("backward_input", "backward, input half", "I", light="#ffd98f", dark="#ffe3ad"),
    Look("backward_weight", "backward, weight half", "W", light="#dd6a1c", dark="#f08a3e", pattern="bars"),
    Look("loss", "loss", "L", light="#f2e652", dark="#f7ee7d"),
    Look("optimizer", "optimizer", "opt", light="#6b3fa0", dark="#bb97ea", pattern="grid"),
    Look("load", "load batch", "load", light="#b9c2cf", dark="#7d8a9c"),
    Look("zero_grad", "clear gradients", "zero", light="#8d97a6", dark="#98a3b3", pattern="bars"),
    Look("kernel", "kernel or operator", "K", light="#c3b7dd", dark="#8f86b5", pattern="stripes"),
    Look("sync", "sync, pale until all ranks joined", "sync", light="#12946f", dark="#2fc79a"),
    Look("wait", "wait (blocked)", "wait", light="#e6d3dc", dark="#5a4350", pattern="dots"),
    Look("idle", "idle", "", light="#f4f6f9", dark="#23272e", pattern="hatch"),
)
"""Every look, in the order of legends. Players refer to a look by its position."""

HELD_LOOKS = (
    Look("param", "parameters", "P", light="#0067a8", dark="#4f9adb"),
    Look("grad", "gradients", "G", light="#efa51f", dark="#ffc34d"),
    Look("optimizer", "optimizer state", "O", light="#6b3fa0", dark="#9d75d9", pattern="grid"),
    Look("activation", "activations", "A", light="#9adcc4", dark="#b6ecd9", pattern="stripes"),
)
"""What a rank holds in memory, from the bottom of the pile: dark and light in turn."""

LOOK_OF_KIND = {
    Kind.LOAD: "load",
    Kind.ZERO_GRAD: "zero_grad",
    Kind.FORWARD: "forward",
    Kind.RECOMPUTE: "recompute",
    Kind.LOSS: "loss",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "backward_input",
    Kind.BACKWARD_WEIGHT: "backward_weight",
    Kind.OPTIMIZER: "optimizer",
    Kind.STAGE_FORWARD: "forward",
    Kind.STAGE_BACKWARD: "backward",
    Kind.STAGE_BACKWARD_INPUT: "backward_input",
    Kind.STAGE_BACKWARD_WEIGHT: "backward_weight",
    Kind.KERNEL: "kernel",
    Kind.SYNC: "sync",
    Kind.WAIT: "wait",
}
"""The look of each kind that is drawn as a span. A step is a frame around spans, a value is no span."""


def look(name: str) -> Look:
    """The look of that name."""
    return next(look for look in LOOKS if look.name == name)


def looks_for_js(looks: tuple[Look, ...] = LOOKS) -> list[dict[str, str]]:
    """Looks as plain data for a player, text colours worked out."""
    return [{**asdict(look), "text_light": look.text("light"), "text_dark": look.text("dark")} for look in looks]


def text_on(fill: str) -> str:
    """Ink or paper, whichever reads better on `fill`."""
    return max((INK, PAPER), key=lambda text: contrast(text, fill))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two "#rrggbb" colours, 1 to 21 (WCAG 2.2; text wants 4.5)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb": 0 for black, 1 for white."""
    red, green, blue = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def template(theme: Theme = "light") -> go.layout.Template:
    """The plotly template of all charts: quiet axes, our fonts, our colours."""
    text, muted, line, page = {
        "light": ("#0f172a", "#51607a", "#e2e8f0", "#ffffff"),
        "dark": ("#e6e8eb", "#a3aebd", "#343a42", "#1a1d23"),
    }[theme]
    axis = dict(
        gridcolor=line,
        linecolor=line,
        zerolinecolor=line,
        automargin=True,
        title=dict(font=dict(color=muted, size=13)),
        tickfont_color=muted,
    )
    return go.layout.Template(
        layout=dict(
            font=dict(family=FONT, size=13, color=text),
            title=dict(x=0, xanchor="left", xref="paper", font_size=15, subtitle_font=dict(size=12, color=muted)),
            paper_bgcolor=page,
            plot_bgcolor=page,
            colorway=[
                look(name).fill(theme) for name in ("forward", "backward", "sync", "optimizer", "backward_weight")
            ],
            xaxis=axis,
            yaxis=axis,
            hoverlabel=dict(font=dict(family=FONT, size=12)),
            margin=dict(l=56, r=20, t=72, b=44),
            legend=dict(orientation="h", x=0, y=1.02, yanchor="bottom"),
        )
    )


def _linear(channel: float) -> float:
    """One sRGB channel, 0 to 1, as light."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
