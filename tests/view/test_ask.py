"""Questions: which answers count."""

import pytest

from labkit.view.ask import ask


def test_an_answer_that_no_choice_gives_is_refused():
    with pytest.raises(ValueError, match="none of the choices"):
        ask("Which?", "c", choices={"a": "", "b": ""})


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), "three"])
def test_a_number_question_needs_a_number(answer):
    with pytest.raises(ValueError, match="no finite number"):
        ask("How many?", answer)


def test_two_percent_is_the_default_margin():
    assert ask("How long?", 200.0).within == 4.0
    assert ask("How many?", 7, within=0).within == 0.0
