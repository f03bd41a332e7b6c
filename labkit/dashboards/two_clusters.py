"""Two trainings of a large model on machines that are not here, side by side: computed, nothing is run.

In: sizes, degrees and a cluster for each side, from two forms. Out: a widget that answers while they are changed.
"""

from __future__ import annotations

from typing import Any

from labkit import schedule
from labkit.cluster import PRESETS as CLUSTERS
from labkit.costs import Model, Training
from labkit.predict import Prediction, memory_advice, predict
from labkit.report import size_words

MODELS = {
    f"{size} ({layers} layers of {hidden:,})": Model(layers, hidden, heads)
    for size, layers, hidden, heads in (
        ("1.7 B", 24, 2304, 24),
        ("7.5 B", 36, 4096, 32),
        ("18.4 B", 40, 6144, 48),
        ("39.1 B", 48, 8192, 64),
        ("145.6 B", 80, 12288, 96),
        ("1 T", 128, 25600, 160),
    )
}
"""GPTs of Narayanan et al. 2021, Table 1."""


def clusters() -> Any:
    """Two forms; below them, at once, what a step would take and where its time would go."""
    from labkit.view.beside import Beside, side

    def answer(values: dict[str, dict[str, Any]]) -> Any:
        return compared({name: predict(*training_of(one)) for name, one in values.items()})

    sides = {
        name: side(f"{name}, computed", f"on_{name.lower()}", _groups(cluster), training_of)
        for name, cluster in (("A", "a100"), ("B", "h100"))
    }
    return Beside(sides, answer)


def training_of(values: dict[str, Any]) -> tuple[Training, str]:
    """A form's training and the name of its cluster. Raises ValueError with the way out."""
    plain = {name: value for name, value in values.items() if name not in ("model", "cluster") and value is not None}
    if plain["pp"] == 1:
        plain["virtual"] = 1
    if plain["dp"] == 1:
        plain["zero"] = 0
    plain["schedule"] = (plain["schedule"] or None) if plain["pp"] > 1 else None
    return Training(model=MODELS[values["model"]], **plain), values["cluster"]


def compared(found: dict[str, Prediction]) -> Any:
    """Both predictions as sentences, rows and a chart."""
    from labkit.view.beside import Compared
    from labkit.view.prediction_figures import spent_figure

    a, b = found.values()
    share = b.step_s / a.step_s - 1
    longer = "as long as" if abs(share) < 0.005 else f"{abs(share):.1%} {'longer' if share > 0 else 'shorter'} than"
    sentences = [f"A step of B would be {longer} one of A.", *(_fits(name, one) for name, one in found.items())]
    steps = {f"{name}, {one.cluster.name}": one for name, one in found.items()}
    return Compared([sentence for sentence in sentences if sentence], _rows(a, b), spent_figure(steps))


def _fits(name: str, one: Prediction) -> str:
    return "" if one.fits else f"{name} does not fit: its fullest GPU {memory_advice(one.training, one.cluster)}."


def _rows(a: Prediction, b: Prediction) -> list[tuple[str, str, str, str]]:
    numbers = {
        "GPUs": (a.training.num_ranks, b.training.num_ranks, "{:,}"),
        "one step": (a.step_s, b.step_s, "{:.3g} s"),
        "TFLOP/s per GPU, model": (a.model_tflops_per_gpu, b.model_tflops_per_gpu, "{:.1f}"),
        "model FLOPs utilization": (a.mfu, b.mfu, "{:.1%}"),
        "GPU seconds per sample": (_per_sample(a), _per_sample(b), "{:.3g}"),
    }
    rows = [
        (name, form.format(one), form.format(other), _difference(one, other, form))
        for name, (one, other, form) in numbers.items()
    ]
    memory = a.memory.total_bytes, b.memory.total_bytes
    limits = a.cluster.device.memory_bytes, b.cluster.device.memory_bytes
    held = [f"{size_words(size)} of {size_words(limit)}" for size, limit in zip(memory, limits)]
    return [*rows, ("memory of the fullest GPU", *held, f"{memory[1] / memory[0] - 1:+.1%}")]


def _difference(one: float, other: float, form: str) -> str:
    """In percent; of percentages in points."""
    return f"{100 * (other - one):+.1f} points" if form.endswith("%}") else f"{other / one - 1:+.1%}"


def _per_sample(one: Prediction) -> float:
    return one.step_s * one.training.num_ranks / one.training.global_batch


def _groups(cluster: str) -> tuple[Any, ...]:
    from labkit.view.fields import Field, Group

    def pick(name: str, label: str, value: Any, known: Any, help: str = "", needs: str = "") -> Field:
        return Field(name, label, "choice", value, help, tuple((one, str(one)) for one in known), needs=needs)

    def number(name: str, label: str, value: int | None, most: int, help: str = "", needs: str = "") -> Field:
        return Field(name, label, "number", value, help, low=1, high=most, needs=needs)

    schedules = (("", "the usual one"), *((name, name) for name in schedule.SCHEDULES))
    what = (
        pick("cluster", "Cluster", cluster, CLUSTERS),
        pick("model", "GPT", list(MODELS)[3], MODELS),
        number("global_batch", "Global batch", 1536, 100_000, "samples of 2,048 tokens"),
        number("microbatch", "Microbatch", 4, 1000, "samples of one microbatch"),
    )
    how = (
        number("dp", "Data parallel", 32, 10_000),
        number("tp", "Tensor parallel", 8, 1000),
        number("pp", "Pipeline", 2, 1000),
        number("virtual", "Stages per rank", 1, 16, needs="pp"),
        Field("schedule", "Schedule", "choice", "", "", schedules, needs="pp"),
        pick("recompute", "Recompute", "full", ("none", "selective", "full")),
        pick("zero", "ZeRO", 0, range(4), needs="dp"),
        Field("sequence_parallel", "Sequence parallel", "switch", False, "split activations too", needs="tp"),
    )
    return Group("What is trained, on what", what), Group("How it is spread", how)
