"""How far predictions are from runs of our own: predicted first, then really run.

In: plans. Out: a `Record` of rows with predicted, measured and error, kept in `assets/own_runs.json` with the day and
the machine. The scorecard page shows the kept record and runs one pair anew when asked to.

    plans    what is run          live     predict, run, compare          record   rows, file, Markdown
"""

from labkit.own_runs.live import Trial, record_all, try_pair
from labkit.own_runs.plans import PAIRS, Pair
from labkit.own_runs.record import Compared, Record, load_record

__all__ = ["PAIRS", "Compared", "Pair", "Record", "Trial", "load_record", "record_all", "try_pair"]
