"""labkit own-runs: predictions beside runs of our own, really run now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.common import check_out, errors, flag


def own_runs(
    kept: Annotated[bool, flag("Print the record that comes with labkit; run nothing.", "--kept")] = False,
    pairs: Annotated[int | None, flag("Only so many pairs of plans (all).")] = None,
    out: Annotated[Path | None, flag("Save the record to this .json file.")] = None,
    as_json: Annotated[bool, flag("Print one JSON object.", "--json")] = False,
) -> None:
    """Predict runs of this machine, run them, and list every error. All of them take minutes."""
    with errors():
        from labkit import lab
        from labkit.own_runs import PAIRS, Compared, load_record, record_all
        from labkit.own_runs.record import plain

        check_out(out)
        if pairs is not None and not 0 <= pairs <= len(PAIRS):
            raise ValueError(f"--pairs {pairs}: give a number from 0 to {len(PAIRS)}")

        def tell(row: Compared) -> None:
            if not as_json:
                numbers = f"predicted {row.predicted:,.2f}, measured {row.measured:,.2f}, {row.error:+.1%}"
                typer.echo(f"{row.case}, {row.quantity}: {numbers}")

        try:
            found = load_record() if kept else record_all(tell, pairs=PAIRS[:pairs])
        finally:
            lab.close()
        print(json.dumps(plain(found)) if as_json else found.markdown())
        if out is not None:
            found.save(out)
