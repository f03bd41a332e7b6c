"""All that a trace has to show: its numbers, why ranks wait, every scene and chart, each behind a tab.

In: a `Trace`, and numbers from elsewhere. Out: a `Results` widget. A scene is made when its tab is opened; all scenes
of one trace share the moment and the selected event.
"""

from collections.abc import Mapping, Sequence

import ipywidgets

from labkit.trace import Trace
from labkit.view.all_reduce import all_reduce
from labkit.view.batch_flow import batch_flow
from labkit.view.chart import chart_widget
from labkit.view.controls import opening_step
from labkit.view.figures import breakdown_figure, loss_figure, memory_figure, sync_figure
from labkit.view.findings import findings
from labkit.view.matrix_shard import matrix_shard
from labkit.view.memory_lanes import memory_lanes
from labkit.view.mesh_grid import mesh_grid
from labkit.view.player import Player, link_players, reader_notes
from labkit.view.report import report
from labkit.view.tabs import Page, Tabs
from labkit.view.timeline import timeline

TIMELINE = "Timeline"


class Results(ipywidgets.VBox):
    """Numbers above, tabs below. `tabs.choose("Mesh")` opens one."""

    def __init__(self, trace: Trace, facts: Mapping[str, str] | None = None, more: Mapping[str, Page] | None = None):
        self._trace, self._step = trace, opening_step(trace)
        self._players: list[Player] = []
        self.tabs = Tabs({**self._pages(), **(more or {})}, label="What to look at")
        super().__init__([report(trace, facts=facts, notes=reader_notes(trace.meta)), self.tabs])
        self.add_class("labkit-results")

    def _pages(self) -> dict[str, Page]:
        trace, step = self._trace, self._step
        scenes: dict[str, Page] = {TIMELINE: self._player(lambda: timeline(trace, step=step))}
        scenes["Why ranks wait"] = lambda: findings(trace, step=step, on_show=self.show_moment)
        if trace.meta.source != "imported":  # profiler files name no samples, values and chunks
            scenes["Batch"] = self._player(lambda: batch_flow(trace))
            scenes["All-reduce"] = self._player(lambda: all_reduce(trace))
            scenes["Matrices"] = self._player(lambda: matrix_shard(trace))
        scenes["Mesh"] = self._player(lambda: mesh_grid(trace))
        if trace.meta.source != "imported":
            scenes["Memory"] = self._player(lambda: memory_lanes(trace))
        scenes["Charts"] = lambda: charts(trace)
        return scenes

    def show_moment(self, t_ns: int) -> None:
        """The timeline, at that time of the trace."""
        player = self.tabs.choose(TIMELINE)
        if isinstance(player, Player):
            player.seek(t_ns)

    def _player(self, make: Page) -> Page:
        def made() -> ipywidgets.Widget:
            player = make()
            self._players.append(player)
            link_players(*self._players)
            return player

        return made


def charts(trace: Trace) -> ipywidgets.GridBox:
    """The charts of one trace that it has data for; the first where it has for none, which says so."""
    figures = [breakdown_figure(trace), sync_figure(trace), sync_figure(trace, show="bandwidth")]
    if trace.meta.source != "imported":
        figures = [loss_figure(trace), loss_figure(trace, by="time"), figures[0], memory_figure(trace), *figures[1:]]
    drawn = [figure for figure in figures if figure.data] or figures[:1]
    return side_by_side([chart_widget(figure) for figure in drawn])


def stacked(widgets: Sequence[ipywidgets.Widget]) -> ipywidgets.VBox:
    """One below the other."""
    return ipywidgets.VBox(list(widgets))


COLUMNS = "repeat(auto-fit, minmax(min(100%, 430px), 1fr))"


def side_by_side(widgets: Sequence[ipywidgets.Widget]) -> ipywidgets.GridBox:
    """Beside each other where there is room, else one below the other."""
    layout = ipywidgets.Layout(grid_template_columns=COLUMNS, grid_gap="0 14px", width="100%")
    return ipywidgets.GridBox(list(widgets), layout=layout)
