"""Pages of the tour: calls as a tree, and no way that becomes longer unnoticed."""

from bench.tour import pages
from bench.tour.recorder import Call, Function, Mark, Way
from bench.tour.ways import KINDS

TAKE, FREE = Function("Line.take", "actors/line.py"), Function("free", "protocol/fifo.py")


def way_of(calls: int = 1, files: int = 1) -> Way:
    """A way of so many calls through so many files."""
    way = Way()
    for number in range(calls):
        file = f"protocol/file{number % files}.py"
        way.steps.append(Call(Function("call", file), 0))
        way.calls_by_file[file] += 1
    return way


def tour_of(**ways: Way) -> str:
    """The text of docs/tour.md after these ways were written; all others are one call long."""
    whole = {kind.name: ways.get(kind.name, way_of()) for kind in KINDS}
    return pages.with_table(f"before\n{pages.BEGIN}\n{pages.END}\nafter\n", whole)


def test_tree_shows_the_file_at_the_first_call_of_a_function_only() -> None:
    tree = pages.calls_of(Way([Call(TAKE, 0), Call(FREE, 1), Call(TAKE, 0)]))

    assert tree.splitlines() == [
        "Line.take  actors/line.py",
        "  free     protocol/fifo.py",
        "Line.take",
    ]


def test_calls_that_repeat_each_other_are_one_line_with_their_number() -> None:
    tree = pages.calls_of(Way([Call(TAKE, 0), Call(FREE, 1), Call(FREE, 1), Call(FREE, 1)]))

    assert tree.splitlines()[1:] == ["  free x3  protocol/fifo.py"]


def test_turn_stands_in_a_line_of_its_own_behind_an_empty_one() -> None:
    tree = pages.calls_of(Way([Call(TAKE, 0), Mark("turn of Queue"), Call(FREE, 0)]))

    assert tree.splitlines()[1:3] == ["", "-- turn of Queue"]


def test_table_replaces_the_one_before_it() -> None:
    tour = tour_of(pub=way_of(7))

    again = pages.with_table(tour, {kind.name: way_of(7) for kind in KINDS})

    assert again.startswith(f"before\n{pages.BEGIN}")
    assert again.endswith(f"{pages.END}\nafter\n")
    assert again.count("(tour/pub.md)") == 1


def test_row_shows_the_bar_of_its_way() -> None:
    rows = {row.split("|")[1].strip(): row for row in tour_of().splitlines() if "|" in row}

    assert "90 calls, 24 files" in rows["[PUB](tour/pub.md)"]
    assert "250 calls" in rows["PUB, FET and ACK together"]


def test_way_with_more_calls_than_the_page_says_is_longer() -> None:
    found = pages.longer_ways(tour_of(pub=way_of(7)), {"pub": way_of(8)})

    assert found == ["pub takes 8 calls, and took 7"]


def test_way_with_as_many_calls_through_more_files_is_longer() -> None:
    found = pages.longer_ways(tour_of(ack=way_of(7, files=2)), {"ack": way_of(7, files=3)})

    assert found == ["ack takes 3 files, and took 2"]


def test_way_that_becomes_shorter_is_not_longer() -> None:
    assert pages.longer_ways(tour_of(pub=way_of(7, files=3)), {"pub": way_of(6, files=2)}) == []


def test_page_that_is_kept_has_a_row_for_every_kind() -> None:
    rows = pages.ROW.findall(pages.TOUR.read_text(encoding="utf-8"))

    assert [name for name, *_ in rows] == [kind.name for kind in KINDS]
