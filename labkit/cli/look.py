"""labkit show, merge, doctor, lab: look at traces, at the machine, at the dashboards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.common import check_out, errors, flag, save


def show(trace: Path) -> None:
    """Say what a saved trace holds."""
    with errors():
        from labkit import report
        from labkit.trace import load

        print(report.describe(load(trace)))


def merge(
    folder: Annotated[Path, typer.Argument(help="The folder of labkit.record, or the --out of labkit.engine.worker.")],
    out: Annotated[Path, flag("The .parquet file to write.")] = Path("trace.parquet"),
) -> None:
    """Merge what the ranks of a torchrun job left behind into one trace."""
    with errors():
        from labkit import report
        from labkit.rank_files import merge_folder

        check_out(out)
        trace = merge_folder(folder)
        print(report.describe(trace))
        save(trace, out)


def doctor() -> None:
    """Say what this machine can run, and why not."""
    with errors():
        from labkit.doctor import examine

        findings = examine()
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'no  '}{finding.what}: {finding.detail}")
        if not all(finding.ok for finding in findings if finding.needed):
            raise typer.Exit(1)


def lab(
    port: Annotated[int, flag("Port on this machine (first free from 8866).")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    notebooks: Annotated[Path | None, flag("Folder of dashboards (the project's own).")] = None,
    seats: Annotated[int | None, flag("Ranks at work at once, of all visitors; later runs wait in line.")] = None,
    run_limit: Annotated[str, flag("Longest time of one run, e.g. 60s.")] = "",
    memory: Annotated[str, flag("Most memory of one run's ranks together, e.g. 2GB.")] = "",
    idle: Annotated[str, flag("How long a visitor's ranks stay warm after a run, e.g. 30s.")] = "",
) -> None:
    """Open the dashboards in the browser. For a class on one machine, set --seats and the other limits."""
    with errors():
        from labkit.quantity import num_bytes, seconds
        from labkit.seats import Limits
        from labkit.serve import serve

        given = Limits(
            seats,
            seconds(run_limit) if run_limit else None,
            num_bytes(memory) if memory else None,
            seconds(idle) if idle else None,
        )
        serve(notebooks, port=port, open_browser=browser, allowed=given)
