"""Pictures of a trace: players that move, charts, and the dashboard's form. Never imports torch.

In: a `Trace`. Out: widgets and plotly figures. One table (`theme`) gives every kind of span its name, colours and
pattern; Python and JavaScript both draw from it.
"""
