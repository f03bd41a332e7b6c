"""The dashboards: what the notebooks `explorer`, `compare` and `your_trace` consist of, and the form of a lesson.

In: nothing but what a reader enters. Out: widgets. Views know neither plans nor processes; here they are given both.

    form       a plan from a form, and its run        conditions  what if: a run replayed under other conditions
    any_plan   the explorer                           two_plans   side by side, and predictions beside runs
    own_trace  files of one's own                     two_clusters  large models elsewhere, computed
    words      numbers in words
"""

from labkit.dashboards.any_plan import explorer
from labkit.dashboards.form import panel
from labkit.dashboards.own_trace import your_trace
from labkit.dashboards.two_clusters import clusters
from labkit.dashboards.two_plans import compare

__all__ = ["clusters", "compare", "explorer", "panel", "your_trace"]
