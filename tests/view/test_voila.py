"""The command that serves dashboards, and what its index page says."""

import json

from labkit.view.voila import notebook_cards, options, voila_command


def test_the_command_names_folder_port_and_loopback():
    command = voila_command("notebooks", 8866)
    assert command[1:] == ["-m", "labkit.view.voila", "notebooks", "--Voila.ip=127.0.0.1", "--port=8866"]


def test_kernels_of_closed_tabs_go():
    assert any("disable_check_xsrf" in option for option in options())
    assert any("cull_idle_timeout" in option for option in options())


def test_cards_tell_title_and_first_words(tmp_path):
    cells = [{"cell_type": "markdown", "source": ["# Tour: four ranks\n", "\n", "Who **waits**? " + "word " * 80]}]
    (tmp_path / "00_tour.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "broken.ipynb").write_text("{")
    cards = notebook_cards(tmp_path)
    assert cards["00_tour.ipynb"]["title"] == "Tour: four ranks"
    assert cards["00_tour.ipynb"]["text"].startswith("Who waits? word") and cards["00_tour.ipynb"]["text"].endswith("…")
    assert len(cards["00_tour.ipynb"]["text"]) <= 180
    assert cards["broken.ipynb"] == {"title": "", "text": ""}
