"""Where the commands print, and the look of their tables."""

from __future__ import annotations

import os

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streamshed.network.nodes import visible

_PIPED_WIDTH = 160  # a file or a pipe has no width of its own; this is enough for every table


def screen() -> Console:
    """Standard output: as wide as the terminal, and wide enough for the tables where there is none."""
    console = Console()
    asked = os.environ.get("COLUMNS", "").isdigit()
    return console if console.is_terminal or asked else Console(width=_PIPED_WIDTH)


def shown(text: str) -> str:
    """Text of a user's in a table: brackets are no markup, and what a terminal would obey is shown.

    >>> print(shown("city = '" + chr(27) + "[31mred'"))
    city = '\\x1b[31mred'
    """
    return escape(visible(text))


def plain_table(*columns: str, text: tuple[str, ...] = ()) -> Table:
    """A table without lines. Its columns stand apart; all but the first and those in `text` hold numbers."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        words = number == 0 or column in text
        table.add_column(column, justify="left" if words else "right", no_wrap=column not in text)
    return table
