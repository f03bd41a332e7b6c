"""Known machines, each number with its source.

In: a name such as "a100". Out: a Cluster. Four kinds of source: a data sheet's line rate; a fit to the handed
measurements (which, is said); an assumption carried over from the A100 (said so); a round figure (said so).
"""
