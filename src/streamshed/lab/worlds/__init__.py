"""Spark's micro-batches in virtual time, in a closed loop with the real controller: no clock, no Spark, exact.

A world is a job (`job`), the rows that come to it (`arrivals`), and a bound (`world`). The `engine` runs batch
after batch under a shedder: the real controller, one of its `rivals`, or nobody. The `clairvoyant` knows all of
it before. `catalog` has the worlds of `streamshed bench control`; `draw` makes others.
"""
