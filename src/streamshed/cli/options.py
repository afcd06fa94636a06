"""Options that several commands have, each with one meaning."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog

Excess = Annotated[
    float | None,
    typer.Option(help="Scale the rates so that the load is this share above the limit: 0.5 is +50 %."),
]
Overload = Annotated[
    float | None,
    typer.Option(help="Multiply the rates with this: 2 is twice the spec's, whatever load that makes."),
]


def rate_factor(catalog: Catalog, *, excess: float | None, overload: float | None) -> float:
    """What `--excess` or `--overload` multiply the rates with; 1 without either.

    The windows of joins stay as they are: `Catalog.at` these rates has the load that was asked for.
    """
    if excess is not None and overload is not None:
        raise InvalidArgument(
            "--excess and --overload both say how much arrives",
            got=f"--excess {excess:g} --overload {overload:g}",
            hint="give one of them",
        )
    if excess is not None:
        if not -1 < excess < math.inf:
            raise InvalidArgument(
                "an excess is a share of the limit, finite and above -1",
                got=f"--excess {excess}",
                hint="0.5 is +50 %",
            )
        return catalog.true_factor(excess)
    if overload is None:
        return 1.0
    if not 0 < overload < math.inf:
        raise InvalidArgument(
            "overload must be positive and finite",
            got=f"--overload {overload}",
            hint="1.0 is the spec's own rates",
        )
    return overload
