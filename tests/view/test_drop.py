"""Files come in pieces: whole, bounded, under harmless names, and gone when they were read."""

from pathlib import Path

import pytest

from labkit.view.drop import Drop

WAIT_S = 10


class Sender:
    """A page that sends pieces as they are asked for, the way `static/drop.js` does."""

    def __init__(self, on_files, files: dict[str, bytes], piece_bytes: int = 4):
        self.files, self.at = list(files.values()), [0] * len(files)
        self.drop = Drop(on_files, hint="", accept="")
        self.drop.piece_bytes = piece_bytes
        self.drop.send = self.answer
        names = [{"name": name, "size": len(data)} for name, data in files.items()]
        self.drop._on_message(self.drop, {"do": "begin", "files": names}, [])
        self.drop.wait(WAIT_S)

    def answer(self, message: dict) -> None:
        number = message["file"]
        piece = self.files[number][self.at[number] :][: self.drop.piece_bytes]
        self.at[number] += len(piece)
        self.drop._on_message(self.drop, {"do": "piece", "file": number}, [memoryview(piece)])


def test_files_arrive_whole_and_do_not_stay():
    seen = {}

    def read(paths: list[Path]) -> None:
        seen.update({path: path.read_bytes() for path in paths})

    files = {"rank0.json": b"0123456789", "rank1.json": b"abc"}
    drop = Sender(read, files).drop
    assert {path.name: data for path, data in seen.items()} == files
    assert drop.state == "idle" and drop.problem == ""
    assert not any(path.exists() for path in seen)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\traces\\rank 3.json.gz", "rank 3.json.gz"),
        ("<img src=x>.json", "_img src_x_.json"),
        (".hidden", "hidden"),
        ("/", "file"),
        ("x" * 300 + ".json", "x" * 95 + ".json"),
    ],
)
def test_names_are_made_harmless(name, kept):
    seen = []
    Sender(lambda paths: seen.extend(path.name for path in paths), {name: b"{}"})
    assert seen == [kept]


def test_two_files_of_one_name_are_two_files():
    seen, drop = [], Drop(lambda paths: None, hint="", accept="")
    drop.send = lambda message: None
    drop._on_files = lambda paths: seen.extend(path.read_bytes() for path in paths)
    drop._on_message(drop, {"do": "begin", "files": [{"name": "a", "size": 1}, {"name": "a", "size": 1}]}, [])
    for number, data in enumerate((b"x", b"y")):
        drop._on_message(drop, {"do": "piece", "file": number}, [data])
    drop.wait(WAIT_S)
    assert seen == [b"x", b"y"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([{"name": "big", "size": 1 << 40}], "at most 512 MiB"),
        ([{"name": "a", "size": 1}] * 65, "65 files: give 1 to 64"),
        ([], "0 files"),
        ([{"name": "empty", "size": 0}], "is empty"),
        ([{"name": "a"}], "size"),
    ],
)
def test_what_is_too_much_is_refused_before_it_is_sent(files, told):
    drop = Drop(lambda paths: pytest.fail("nothing may be read"), hint="", accept="")
    drop.send = lambda message: pytest.fail("nothing may be asked for")
    drop._on_message(drop, {"do": "begin", "files": files}, [])
    assert drop.state == "idle" and told in drop.problem


@pytest.mark.parametrize("piece", [b"", b"more than was said"])
def test_a_file_that_is_not_as_long_as_it_said_is_refused(piece):
    drop = Drop(lambda paths: pytest.fail("nothing may be read"), hint="", accept="")
    drop.send = lambda message: None
    drop._on_message(drop, {"do": "begin", "files": [{"name": "a", "size": 5}]}, [])
    drop._on_message(drop, {"do": "piece", "file": 0}, [piece])
    assert drop.state == "idle" and "not as long as it said" in drop.problem


def test_a_file_that_cannot_be_read_is_told_by_its_own_name():
    def read(paths: list[Path]) -> None:
        raise ValueError(f"{paths[0]} is no profiler file")

    drop = Sender(read, {"mine.json": b"hello"}).drop
    assert drop.problem == "mine.json is no profiler file" and drop.state == "idle"


def test_whatever_a_reader_does_the_page_lives_on():
    def read(paths: list[Path]) -> None:
        raise RecursionError("too deep")

    assert Sender(read, {"a.json": b"[["}).drop.problem == "RecursionError: too deep"


def test_a_page_cannot_raise_the_limits():
    drop = Drop(lambda paths: None, hint="", accept="")
    drop.set_state({"max_bytes": 2**50, "max_files": 10**6})
    drop._on_message(None, {"do": "begin", "files": [{"name": "a.parquet", "size": 2**40}]}, [])
    assert "at most 512 MiB" in drop.problem and drop.state == "idle"
    drop._on_message(None, {"do": "begin", "files": [{"name": "a.parquet", "size": 1}] * 65}, [])
    assert "give 1 to 64 at once" in drop.problem
