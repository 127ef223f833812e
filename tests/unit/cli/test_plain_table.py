"""Tables of text: aligned, cut only on a terminal, and never below what can be read."""

from __future__ import annotations

import io

from rich.console import Console

from headwater.cli.plain_table import Column, fit, print_table, widths_of

COLUMNS = [Column("NAME", keep=True), Column("ROWS", right=True), Column("NOTE")]
ROWS = [("orders", "1,204", "short"), ("payments-of-all-kinds", "7", "a note that is rather long, longer than a line")]


def printed(width: int, *, terminal: bool) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    print_table(console, COLUMNS, ROWS)
    return text.getvalue().splitlines()


def test_numbers_are_aligned_to_the_right_and_no_line_ends_in_spaces() -> None:
    assert printed(80, terminal=False) == [
        "NAME                    ROWS  NOTE",
        "orders                 1,204  short",
        "payments-of-all-kinds      7  a note that is rather long, longer than a line",
    ]


def test_on_a_terminal_the_widest_column_gives_way_and_names_stay() -> None:
    lines = printed(50, terminal=True)

    assert max(map(len, lines)) <= 50
    assert lines[2] == "payments-of-all-kinds      7  a note that is rath…"


def test_into_a_pipe_nothing_is_cut() -> None:
    assert printed(50, terminal=False) == printed(80, terminal=False)


def test_no_column_falls_below_its_least() -> None:
    widths = fit(widths_of(COLUMNS, ROWS), COLUMNS, 10)

    assert widths == [21, 5, 8]


def test_letters_that_are_two_cells_wide_are_counted_so() -> None:
    assert widths_of([Column("A")], [["日本"]]) == [4]
