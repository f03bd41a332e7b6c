"""What can be trained, as far as a plan must know it. The models and data themselves are in `engine.tasks`.

In: nothing. Out: `TASKS`, one line of facts per built-in task. A user's own task is called "own".
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskFacts:
    """Which plans make sense for a task."""

    name: str
    summary: str
    cuttable: bool  # has linear layers that tensor parallelism can cut
    sequence: bool  # has a sequence dimension that sequence parallelism can cut
    extra_layers: tuple[str, str] | None = None  # named layers before and after the `layers` equal ones


TASKS = {
    facts.name: facts
    for facts in (
        TaskFacts("digits", "1,797 handwritten digit images of 8 x 8 pixels; a multilayer perceptron", True, False),
        TaskFacts("digits_cnn", "the same images; a small convolutional network", False, False),
        TaskFacts(
            "chars",
            "next-character prediction on the source of Python's standard library; a small GPT",
            True,
            True,
            ("embedding", "head"),
        ),
        TaskFacts("own", "a user's own module given as named layers, with a batch function and a loss", False, False),
    )
}
