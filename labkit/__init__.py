"""labkit: see distributed training happen, from real runs."""

__version__ = "0.1.0"
