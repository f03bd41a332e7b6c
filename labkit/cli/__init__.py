"""The notebook's verbs in a shell. Each command is one file; what it needs is imported when it runs."""

from __future__ import annotations

import typer

from labkit.cli import analyze, export, look, own_runs, predict, replay, run

app = typer.Typer(
    help="See distributed training happen, from real runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: loading what would draw boxes around it takes as long as all the rest
)

app.command()(run.run)
app.command()(look.show)
app.command()(analyze.analyze)
app.command()(analyze.explain)
app.command("import")(analyze.import_)
app.command()(export.export)
app.command()(replay.schedule)
app.command()(replay.replay)
app.command()(predict.predict)
app.command()(predict.scorecard)
app.command()(own_runs.own_runs)
app.command()(predict.calibrate)
app.command()(look.merge)
app.command()(look.doctor)
app.command()(look.lab)


def main() -> None:
    """The `labkit` command."""
    app()
