"""The web shop of the demo: what its visitors do, and the network that four teams read it by.

Every team has a model, a network of radial functions of what is in the cart and how long the visitor has been
there: some millions of exponentials a second, compiled by Spark.
"""

from __future__ import annotations

import json
import math

import numpy as np

from streamshed.lab.bench.feeder import Lines
from streamshed.network import Builder, Network

# Guesses, of which only the proportions count. The demo measures what its machine takes.
_TERM = 2.5e-7  # seconds that one radial function takes
_PARSE = 7 * _TERM


def events(count: int = 50_000, seed: int = 1) -> Lines:
    """Carts of 34 in the middle, with a long tail; one event in fifty is a robot's, with nothing in the cart."""
    rng = np.random.default_rng(seed)
    carts = np.clip(rng.lognormal(math.log(34.0), 0.95, count), 1.0, 999.0)
    items = 1 + rng.poisson(1.4, count)
    items[rng.random(count) < 0.02] = 0
    visitors = np.minimum(rng.zipf(1.3, count), 99_999)
    seconds = rng.exponential(40.0, count)
    return Lines(
        json.dumps({"visitor": int(v), "cart": round(float(c), 2), "items": int(n), "seconds": round(float(s), 1)})
        for v, c, n, s in zip(visitors, carts, items, seconds, strict=True)
    )


def radial(count: int, seed: int, largest: float) -> str:
    """A radial network of so many functions, as a SQL expression of `cart` and `seconds`."""
    rng = np.random.default_rng(seed)
    weights, carts, times = rng.uniform(0.1, 1, count), rng.uniform(1, largest, count), rng.exponential(40, count)
    return " + ".join(
        f"{weight:.3f} * exp(0 - power(abs(cart - {cart:.1f}), 1.8) / 900"
        f" - power(abs(seconds - {time:.1f}), 1.6) / 400)"
        for weight, cart, time in zip(weights, carts, times, strict=True)
    )


def network(bound: float = 6.0) -> Network:
    """One parse for all; what each team wants differs.

    fraud        checks carts before they are paid: large ones above all, and within the bound
    offers       discounts for carts of several things; they move those in the middle
    suggestions  nice to have on most pages; soon or not at all
    trends       a sample will do, and a minute later is early enough
    """
    soon = [(0, 1.0), (bound, 1.0), (2 * bound, 0.0)]
    seen = {"visitor": "visitor", "cart": "cart", "at": "at"}
    return (
        Builder("shop")
        .source("events", "visitor INT, cart DOUBLE, items INT, seconds DOUBLE, at TIMESTAMP",
                parse={"format": "json", "cost": _PARSE}, arrived="at", rate=20_000, values={"cart": (1, 250)})
        .filter("people", "events", "items > 0", cost=_TERM, selectivity=0.98)
        .map("checked", "people", {**seen, "risk": radial(36, 1, 400)}, cost=36 * _TERM)
        .filter("several", "people", "items >= 2", cost=0.2 * _TERM, selectivity=0.75)
        .map("priced", "several", {**seen, "discount": radial(20, 2, 200)}, cost=20 * _TERM)
        .map("guessed", "people", {**seen, "next": radial(27, 3, 150)}, cost=27 * _TERM)
        .map("minutes", "people", {**seen, "minutes": "seconds / 60"}, cost=_TERM)
        .output("fraud", "checked", latency=soon,
                value=("cart", [[0, 40, 0.02], [40, 150, 0.3], [150, 1000, 1.0]]))
        .output("offers", "priced", latency=soon,
                value=("cart", [[0, 40, 0.05], [40, 150, 1.0], [150, 1000, 0.4]]))
        .output("suggestions", "guessed", latency=[(0, 1.0), (bound, 1.0), (1.5 * bound, 0.0)],
                loss=[(100, 1.0), (30, 0.85), (0, 0.0)])
        .output("trends", "minutes", latency=[(0, 1.0), (15 * bound, 1.0), (100 * bound, 0.0)],
                loss=[(100, 1.0), (5, 0.95), (0, 0.0)])
        .build()
    )  # fmt: skip
