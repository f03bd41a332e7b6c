"""What every player has: one look, one place to say where its times come from, one way to be driven from Python.

In: a `Trace`'s metadata. Out: `Player`, the base of all animated widgets.

The playhead lives in the browser. Nothing crosses to the kernel while a player runs: data goes over once, as binary
buffers, and only a click (`selected`) comes back.
"""

import uuid
from typing import Any

import anywidget
import traitlets

from labkit.trace import SOURCES, Meta
from labkit.view.theme import looks_for_js


class Player(anywidget.AnyWidget):
    """Base of the animated widgets. Subclasses give `_esm` and `_css`."""

    heading = traitlets.Unicode().tag(sync=True)
    source = traitlets.Unicode().tag(sync=True)  # the badge: where the times come from
    source_help = traitlets.Unicode().tag(sync=True)
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    looks = traitlets.List().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)  # the clicked event's place in trace.events; -1: none
    link_group = traitlets.Unicode().tag(sync=True)  # players of one group share moment and selection
    saved = traitlets.List(traitlets.Unicode()).tag(sync=True)  # the traits that an exported page needs

    def __init__(self, meta: Meta, *, heading: str, **traits: Any) -> None:
        super().__init__(
            heading=heading,
            source=source_badge(meta),
            source_help=SOURCES[meta.source],
            notes=reader_notes(meta),
            looks=looks_for_js(),
            saved=sorted(set(self.class_trait_names(sync=True)) - {*anywidget.AnyWidget.class_trait_names(), "saved"}),
            **traits,
        )

    def play(self) -> None:
        """Start every view of this player."""
        self.send({"do": "play"})

    def pause(self) -> None:
        """Stop every view of this player."""
        self.send({"do": "pause"})

    def seek(self, t_ns: float) -> None:
        """Move the playhead of every view to a time, in ns since the trace's origin."""
        self.send({"do": "seek", "t_ns": float(t_ns)})


def link_players(*players: Player) -> None:
    """Let players of the same trace share the moment and the selected event, from now on.

    Play, scrub or select in one, and the others follow, inside the page: no kernel is asked while they play.
    """
    group = uuid.uuid4().hex
    for player in players:
        player.link_group = group


def source_badge(meta: Meta) -> str:
    """Where the times come from, in a word or two: "paced, 100 times slower"."""
    scale = (meta.plan or {}).get("time_scale", 1) or 1
    return meta.source if scale == 1 else f"{meta.source}, {scale:g} times slower"


def reader_notes(meta: Meta) -> list[str]:
    """What a reader must know before believing the picture."""
    dropped = (
        f"{meta.dropped_events:,} events were dropped: the recorder's buffer was full, so gaps may be no idle time"
    )
    is_told = not meta.dropped_events or any("dropped" in note for note in meta.notes)
    return [*meta.notes] if is_told else [*meta.notes, dropped]
