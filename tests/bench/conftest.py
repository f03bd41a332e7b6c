"""The bench's one fixture, `figure`."""

from figure_fixture import figure  # noqa: F401
