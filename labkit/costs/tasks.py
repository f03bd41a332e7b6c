"""Bytes of labkit's own small tasks, to be held against what a captured run reports."""


class TaskMemory: ...


def task_memory(plan): ...
