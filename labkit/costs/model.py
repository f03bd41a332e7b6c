"""A GPT by its sizes: how many parameters it has and how many FLOPs it takes.

Letters as in the papers: l layers, h hidden, a heads, s sequence, V vocabulary, B samples of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Model:
    """Sizes of a GPT: a decoder with an MLP of 4 h and an output layer tied to the embedding."""

    layers: int
    hidden: int
    heads: int
    sequence: int = 2048
    vocabulary: int = 51200

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"model {field.name}={value!r}: give a whole number, 1 or more")
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden {self.hidden} does not divide into {self.heads} heads: "
                f"choose hidden {-(-self.hidden // self.heads) * self.heads}, or another number of heads"
            )

    def __str__(self) -> str:
        billions = num_parameters(self) / 1e9
        return f"GPT of {billions:.3g} B ({self.layers} layers, hidden {self.hidden}, {self.heads} heads)"


def parameters_of_layer(model: Model) -> int:
    """12 h^2 + 13 h: attention 4 h^2 + 4 h, MLP 8 h^2 + 5 h, two norms 4 h. Narayanan et al. 2021, section 5.1."""
    h = model.hidden
    return 12 * h * h + 13 * h


def num_parameters(model: Model) -> int:
    """P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)). Narayanan et al. 2021 (arXiv 2104.04473), equation 2.

    24 layers, h 2304, s 2048, V 51200: 1.65 B.
    """
    return model.layers * parameters_of_layer(model) + (model.vocabulary + model.sequence) * model.hidden


def model_flops(model: Model, num_samples: int) -> float:
    """FLOPs the mathematics of a step needs: 72 B l s h^2 (1 + s/(6 h) + V/(12 h l)).

    Korthikanti et al. 2022 (arXiv 2205.05198), appendix A, equation 7. Forward is a third, backward two.
    """
    l, h, s, V = model.layers, model.hidden, model.sequence, model.vocabulary
    return 72.0 * num_samples * l * s * h * h * (1 + s / (6 * h) + V / (12 * h * l))


def hardware_flops(model: Model, num_samples: int, recompute: str = "full") -> float:
    """FLOPs really done in a step, recomputation included.

    full: 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)), Narayanan et al. 2021, equation 3. selective: the attention core's
    forward, 4 B l s^2 h, once more (Korthikanti et al. 2022, appendix A). none: the model FLOPs.
    """
    l, h, s, V = model.layers, model.hidden, model.sequence, model.vocabulary
    if recompute == "full":
        return 96.0 * num_samples * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h))
    again = 4.0 * num_samples * l * s * s * h if recompute == "selective" else 0.0
    return model_flops(model, num_samples) + again
