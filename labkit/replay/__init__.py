"""What if: a captured run under other conditions, or turned into another plan, computed on an event graph.

Pure: no torch, no processes. In: a Trace, and what to change. Out: a Trace that says where its times come from.

    graph.py     nodes on resources -> times: compute lanes, link lanes, messages, collectives
    program.py   event rows tied to a graph: marks in, rows at new times out
    changes.py   what is different        matching.py  which rows are one operation
    syncs.py     what each costs          implied.py   waits that nobody was seen in
    captured.py  a trace as a program     replayed.py  `replay`, and what a step takes
    columns.py   arithmetic on columns    latency.py   a step on links of other latencies
    writer.py    a program by hand        planned.py   `planned_trace`: a schedule as a trace
    rescheduled.py  a planned trace under another schedule
    learned.py   durations from a trace   shapes.py    sizes of the built-in tasks
    stepplan.py  what torch does with a plan           replanned.py `replan`
    moves.py     the same of a pipeline's messages
"""

from labkit.replay.changes import Changes
from labkit.replay.graph import COLLECTIVE, RECV, SEND, Graph, ReplayError, Syncs, Times, play
from labkit.replay.planned import planned_trace
from labkit.replay.replanned import replan, same_plan
from labkit.replay.replayed import exposed_sync_ns, replay, step_ns

__all__ = [
    "COLLECTIVE",
    "RECV",
    "SEND",
    "Changes",
    "Graph",
    "ReplayError",
    "Syncs",
    "Times",
    "exposed_sync_ns",
    "planned_trace",
    "play",
    "replan",
    "replay",
    "same_plan",
    "step_ns",
]
