"""The command that serves dashboards, and what its index page says."""

import json

from labkit.view.voila import CARD_CHARACTERS, notebook_cards, options, voila_command


def test_the_command_names_folder_port_and_loopback():
    command = voila_command("notebooks", 8866)
    assert command[1:] == ["-m", "labkit.view.voila", "notebooks", "--Voila.ip=127.0.0.1", "--port=8866"]


def test_kernels_of_closed_tabs_go():
    assert any("disable_check_xsrf" in option for option in options())
    assert any("cull_idle_timeout" in option for option in options())


def test_cards_tell_title_and_first_words(tmp_path):
    cells = [
        {
            "cell_type": "markdown",
            "source": [
                "# Tour: four ranks\n",
                "\n",
                "Who *waits* for whom, and **how long** in each of the steps that follow? " + "word " * 80,
            ],
        }
    ]
    (tmp_path / "00_tour.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "broken.ipynb").write_text("{")
    tour, broken = notebook_cards(tmp_path)
    assert (tour["title"], tour["group"]) == ("Tour: four ranks", "lessons")
    assert tour["text"] == "Who waits for whom, and how long in each of the steps that follow? " + "word " * 22 + "…"
    assert broken == {"path": "broken.ipynb", "group": "tools", "title": "Broken", "text": ""}


def test_a_long_first_sentence_is_cut_at_a_word(tmp_path):
    cells = [{"cell_type": "markdown", "source": "# T\n\n" + "word " * 80}]
    (tmp_path / "01_long.ipynb").write_text(json.dumps({"cells": cells}))
    (card,) = notebook_cards(tmp_path)
    assert card["text"].endswith("word …") and len(card["text"]) <= CARD_CHARACTERS


def test_lessons_come_in_order_and_tools_as_a_reader_needs_them(tmp_path):
    for name in ("zeta", "your_trace", "10_late", "02_early", "explorer", "compare"):
        (tmp_path / f"{name}.ipynb").write_text("{}")
    paths = [card["path"].removesuffix(".ipynb") for card in notebook_cards(tmp_path)]
    assert paths == ["02_early", "10_late", "explorer", "compare", "your_trace", "zeta"]
