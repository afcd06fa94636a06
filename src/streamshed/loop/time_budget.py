"""The time budget: until when rows may pass the drop, so that none is later than the bound, whatever came."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamshed.loop.batch_cost import CostModel
from streamshed.loop.keep_response import KeepResponse
from streamshed.loop.overload import longest, usable
from streamshed.loop.tail_time import TailTime
from streamshed.records import Sample

LOOK_AFTER = 0.2
"""Share of the bound that an interval may have been running for before it is looked at."""
_FIRST = 0.7  # share of the bound that the first interval may take, of which nothing is known
_CUT_AT = 1.03  # of the allowed length: an interval of a lasting overload takes no longer
_NEXT_LOOK = 1.1  # times as long it will have been running at the next look
_STEP = 0.05  # share of the bound by which looks at a running interval are told apart
_LEAST = 0.25  # share of the bound that an interval may take however long its rows have waited
_BY_ITSELF = 2.0  # bounds after which a job that is late all the time does not get over it by itself
_MORE = 1.05  # what usually arrives scatters
_UNEVEN = 1.05  # and not all tasks have the same number
_FIRST_GRACE = 64  # rows, while nothing is known
_FEW = 8  # intervals that tell little
_LEAST_GRACE = 20  # rows, so that something can be learned whatever happens
_AT_EASE = 0.6  # of the allowed length: what an interval has that took less is no overload
_USUALLY = 3.0  # bounds over which the usual rate is a mean
_IDLE = 0.25  # seconds from the end of an interval to the next one's start, if the source had nothing
_BURST = 1.5  # times the usual rows
_LASTING = 2  # intervals in a row that had more: no lump
_RESERVE = 0.08  # share of the bound for what the interval after a long one may have to read and drop
_READING = 8e-6  # seconds of a core that a row takes to be read and dropped, as long as nobody knows better, …
_CHEAP = 0.3  # … and at most this share of what a kept one takes
_KNOWN = 3.0  # times the most rows that one interval has dropped: so far what was learned can be believed
_AS_NEW = 0.5  # share of their wait that rows may take to be read and dropped, in code that is as new as the job
_SLIP = 0.5  # share of the way to what the last interval's budget was missed by
_UNTOLD = 0.25  # share of the bound that comes behind the drop, at most, where nobody says
_TELLING = 0.4  # share of the bound: an interval as long tells how time is split
_TAIL = 0.8  # share of an interval that is after the drop, at most
_MOSTLY = 0.4  # share of an interval behind the drop: then cutting saves little
_HEADS = 20  # intervals that tell how long rows take to come to the drop
_HEAD = 1.25  # times as long as the quickest of them took: a budget of less would cut what comes at once


class Allowance(NamedTuple):
    """What the next interval may take."""

    budget: float
    """Seconds from its own time until which rows may pass the drop."""
    grace: int
    """Rows that pass whatever the clock says, shared among the tasks."""
    length: float
    """Seconds that it may take in all, with what comes behind the drop."""


def first_allowance(latency: float) -> Allowance:
    """Before anything is known."""
    return Allowance(_FIRST * latency, _FIRST_GRACE, _FIRST * latency)


class TimeBudget:
    """No row's fate depends on a prediction of what will come.

    The oldest row of the next interval has waited since the running one began, for W seconds. A bound B leaves
    the interval B − W, less a margin, and less what comes behind the drop. W is what the running interval is
    expected to take, and no less than it has been running already. A long interval makes the next one's rows
    wait, so it may take no more than leaves time for what usually arrives meanwhile: (B − c₀)/(1 + ρ) for a load
    ρ, which is all of B for rows that come now and then, and B/2 at full load. A lump is no load that lasts; what
    has come twice in a row is, and long and short intervals in turns would keep less than equal ones.

    A slow interval is no overload. As many rows as usually arrive in W seconds pass whatever the clock says
    (`grace`), so that a pause costs time and no rows; unless the job would not be back by itself soon, or the
    rows of the running interval were counted and are more than usual. The usual rate is that of intervals which
    had time enough. It is told in rows: what they cost need not be known.
    """

    def __init__(self, latency: float, cost: CostModel) -> None:
        self.latency = latency
        self._cost = cost
        self._tails = TailTime()
        self._tells = False
        self._mostly_behind = False
        self._slip = 0.0
        self._heads: deque[float] = deque(maxlen=_HEADS)
        self._before = 0.0
        self._foreseen = 0.0
        self._rate = 0.0
        self._newest = 0.0
        self._rates: deque[float] = deque(maxlen=_LASTING)
        self._usual = 0.0
        self._untouched = 0.0
        self._usual_work = 0.0
        self._tasks = 1
        self._cores = 1
        self._one_by_one = 0.0
        self._most_dropped = 0.0
        self._interval = 0.0
        self._wait = 0.0
        self._then: float | None = None
        self._a_row = 1.0
        self._held_back = 0.0
        self._idles = False  # as long as nobody knows: rows may be waiting behind a slow first interval
        self._calm = True
        self._late_since = math.inf
        self._seen = 0
        self._last: Sample | None = None
        self._thinned_to = 1.0
        self._after = 0.0

    def observe(
        self,
        sample: Sample,
        told: Sample,
        *,
        response: KeepResponse,
        shedding: bool,
        budget: float | None,
        share: float = 1.0,
    ) -> None:
        """Take a sample in, whose interval had this budget; `told` is the same in units of work.

        `share`: of the work, what the plan leaves that will be made now.
        """
        # Drops come to those who begin after they are published; a budget also to who has begun and waits for it.
        planned = sample.next_started and sample.next_planned
        self._thinned_to = share if planned else max(share, response.share(sample.keep_next))
        self._untouched = max(0.0, response.untouched)
        self._interval = sample.interval
        if not sample.finished and not sample.next_started:
            # Nothing runs, so nothing waits.
            self._idles = True
            self._wait = min(self._wait, 0.5 * LOOK_AFTER * self.latency)
            return
        if not sample.finished:
            step, most = _STEP * self.latency, longest(self.latency, sample.interval)
            wait = math.ceil(_NEXT_LOOK * sample.duration / step) * step
            # In a lasting overload intervals are cut at that length; and behind one that was cut, each is over
            # soon after its own budget. The first of a burst leaves more to read than anybody foresees.
            if shedding and sample.duration < most:
                wait = min(wait, _CUT_AT * most)
            known = self._last is not None and self._last.cut > 0
            if budget is not None and known and sample.duration < budget + self._after:
                wait = min(wait, budget + self._after)
            if self._then is not None:
                # That one was waited for; from now on it is the one behind it.
                self._wait, self._then = self._then, None
            self._wait = max(self._wait, wait)
            self._count_running(sample)
            return
        # From the end of the first late one on: that one may have been held up for however long.
        self._late_since = min(self._late_since, sample.at) if sample.latency > self.latency else math.inf
        by_itself = sample.at - self._late_since <= _BY_ITSELF * self.latency
        undisturbed = not shedding and sample.shed == 0 and by_itself
        self._calm = undisturbed and sample.arrived <= self._as_usual(sample.gap)
        self._seen += 1
        self._tasks = sample.tasks or self._tasks  # not every interval tells
        self._cores = sample.cores or self._cores
        self._most_dropped = max(self._most_dropped, told.arrived - told.kept)
        self._one_by_one = max(0.0, 1.0 - sample.cores / self._tasks) if sample.cores else 0.0
        if sample.arrived > 0:
            self._a_row = told.arrived / sample.arrived
        if sample.gap > 0:
            self._newest = told.arrived / sample.gap
            self._rates.append(self._newest)
            self._rate = self._mean(self._rate, told.arrived, sample.gap)
            self._usual_work = self._work(self._a_row) if sample.arrived else 0.0
            fits = sample.duration <= _AT_EASE * longest(self.latency, sample.interval)
            if undisturbed and fits:
                self._usual = self._mean(self._usual, sample.arrived, sample.gap)
        self._held_back = sample.backlog / (sample.arrived / sample.gap) if sample.arrived and sample.gap else 0.0
        self._expect(sample, response.share(sample.keep_next))

    def _count_running(self, sample: Sample) -> None:
        """See how many rows the running interval was given, if the source tells: no other is newer."""
        gap = 0.0 if self._last is None else sample.started - self._last.started
        self._calm = self._calm and sample.arrived <= self._as_usual(gap)
        if sample.arrived > 0 and gap > 0:
            self._newest = self._a_row * sample.arrived / gap

    def _as_usual(self, gap: float) -> float:
        """Rows of so many seconds, at most, if they are no burst; of a first interval nobody knows how many."""
        if self._usual <= 0 or gap <= 0:
            return math.inf
        return _BURST * self._usual * max(gap, LOOK_AFTER * self.latency)

    @property
    def slow_behind(self) -> bool:
        """Whether rows pass the drop sooner than what comes behind it can take them: then no budget holds them."""
        return self._tails.grows and self._mostly_behind

    def learn(self, sample: Sample, told: Sample, budget: float | None) -> None:
        """Learn from a finished interval, which had this budget, how its time was split."""
        tail = sample.tail
        if tail > 0:
            self._mostly_behind = tail > _MOSTLY * sample.duration
        cut_at = budget if sample.cut > 0 else None
        self._tells = self._tells or tail > 0
        if not self._tells and cut_at is not None:
            # Nobody says; what came after the last row that was in time is at least that.
            tail = min(sample.duration - cut_at, _UNTOLD * self.latency)
        if tail > 0:
            self._tails.observe(tail, told.kept)
        if sample.tail > 0 and sample.cut == 0 and sample.arrived > 0:
            self._heads.append(sample.duration - sample.tail)
            if sample.duration >= _TELLING * self.latency:
                self._before = 1.0 - sample.tail / sample.duration
        if sample.tail > 0 and cut_at is not None and cut_at >= LOOK_AFTER * self.latency:
            read = min(self._foreseen, self._reading_of(told.cut))
            missed = sample.duration - sample.tail - cut_at - read
            self._slip += _SLIP * (min(max(0.0, missed), _STEP * self.latency) - self._slip)

    def _expect(self, sample: Sample, share_next: float) -> None:
        """How long the oldest row of the next interval will have waited."""
        last, self._last = self._last, sample
        if last is not None and not last.next_started:
            self._idles = sample.started - last.at > _IDLE
        running = self._length_of_next(sample, share_next)
        self._then = None
        if sample.next_started and sample.next_planned:
            self._wait = running
        elif sample.next_started or not self._idles:
            self._wait, self._then = sample.duration, running
        else:
            # Had rows been waiting, there would be a next one. But a short one may come between.
            self._wait = 0.5 * LOOK_AFTER * self.latency

    def _length_of_next(self, sample: Sample, share: float) -> float:
        """How long the interval behind this one is expected to take; if it takes longer, it is looked at."""
        if not self._cost.ready:
            return min(sample.duration, 0.5 * self.latency)
        arriving = self._rate * max(sample.interval, sample.duration)
        expected = self._cost.predict(arriving, arriving * share)
        return max(min(expected, 0.5 * self.latency), LOOK_AFTER * self.latency)

    def _mean(self, before: float, rows: float, gap: float) -> float:
        weight = -math.expm1(-gap / (_USUALLY * self.latency)) if before else 1.0
        return before + weight * (rows / gap - before)

    def _work(self, rows: float) -> float:
        """Seconds that rows take, if all are kept."""
        return self._cost.predict(rows, rows) - self._cost.predict(0.0, 0.0)

    def _reading_of(self, rows: float) -> float:
        """Seconds that rows take which come when the time is used up: all but the protected ones are dropped."""
        read = self._cost.predict(rows, 0.0) - self._cost.predict(0.0, 0.0)
        # A fit to intervals that dropped little knows nothing of a flood: often it says that reading is free.
        flood = max(0.0, rows - _KNOWN * self._most_dropped)
        each = min(_READING / (self._cores * max(self._a_row, 1e-12)), _CHEAP * self._work(1e6) / 1e6)
        return max(read, flood * each) + self._work(self._untouched * rows)

    def allowance(self) -> Allowance:
        """For the next interval."""
        within = usable(self.latency)
        wait = max(self._interval, self._wait + self._held_back)
        left = max(within - wait, _LEAST * self.latency)
        if not self._cost.ready or self._rate <= 0:
            allowed = min(_FIRST * self.latency, left)
            reading = max(_RESERVE * self.latency, _AS_NEW * wait if self._seen else 0.0)
            behind = min(self._tails.predict(0.0) + reading, _TAIL * allowed)
            return self._unless_in_vain(Allowance(allowed - behind, self._least_grace(), allowed))
        fixed = self._cost.predict(0.0, 0.0)
        # What usually arrives, or what has come more than once, if that is more: a lump comes once.
        lasting = min(self._rates) if len(self._rates) == _LASTING else 0.0
        load = _MORE * min(1.0, max(self._usual * self._usual_work, self._work(lasting)))
        most = max(within / 2.0, (within - fixed - _RESERVE * self.latency) / (1.0 + load))
        allowed = min(most, left, within - self._interval)
        rows = _MORE * self._usual * wait if self._calm else 0.0
        behind = self._behind(allowed, wait)
        if wait > within / 2.0:
            # Tasks that have to wait for their turn have it when the time is used up.
            behind += self._one_by_one * self._usual_work * rows
        grace = max(self._least_grace(), math.ceil(rows * (_UNEVEN if self._tasks > 1 else 1.0)))
        # Whatever estimates say: the last long interval had this share of its time in front of the drop.
        budget = max(0.0, allowed - behind, self._before * allowed - self._foreseen - self._slip)
        if self._tails.predict(0.0) > _MOSTLY * longest(self.latency, self._interval):
            # Most of the work is behind the drop, and plans have to see to it: a budget that is over before rows
            # come to the drop would cut all of them.
            budget = max(budget, _HEAD * min(self._heads, default=0.0))
        return self._unless_in_vain(Allowance(budget, grace, max(allowed, budget)))

    def _unless_in_vain(self, allowance: Allowance) -> Allowance:
        """If what comes behind the drop in any case is too long already, to cut is in vain."""
        tail = self._tails.least
        if not self._tells or self._tails.grows or tail <= longest(self.latency, self._interval):
            return allowance
        return Allowance(tail + self.latency, _FIRST_GRACE, tail + self.latency)

    def _least_grace(self) -> int:
        return _LEAST_GRACE if self._seen > _FEW else _FIRST_GRACE

    def _behind(self, allowed: float, wait: float) -> float:
        """Seconds after the budget is over: reading rows that are dropped, and all that comes behind the drop."""
        many = 1e6
        a_row = self._work(many) / many
        left = max(0.0, allowed - self._cost.predict(0.0, 0.0))
        fitting = left / a_row if a_row > 0 else math.inf
        # Rows that a plan takes out are read among the others, before the time is used up.
        passing = self._cost.predict(many, self._thinned_to * many) - self._cost.predict(0.0, 0.0)
        read = left * many / passing if passing > 0 else math.inf
        dropped = max(0.0, max(self._rate, self._newest) * wait - read)
        self._foreseen = min(self._reading_of(dropped), _TAIL / 2 * allowed)
        self._after = self._tails.predict(fitting) + self._foreseen + self._slip
        return min(self._after, _TAIL * allowed)

    def remember(self) -> dict[str, Any]:
        return {
            "rate": self._rate,
            "usual": self._usual,
            "tasks": self._tasks,
            "slip": self._slip,
            "tail": self._tails.remember(),
        }

    def recall(self, learned: Mapping[str, Any]) -> None:
        numbers = {name: float(learned[name]) for name in ("rate", "usual", "slip")}
        tasks = int(learned["tasks"])
        if not all(0.0 <= number < math.inf for number in numbers.values()) or tasks < 1:
            raise ValueError("no budget")
        self._tails.recall(learned["tail"])
        self._rate, self._usual, self._slip = numbers.values()
        self._tasks = tasks
        self._seen = _FEW + 1
        # The first interval is as usual, as far as anybody knows.
        self._wait = LOOK_AFTER * self.latency
        self._usual_work = self._work(self._rate) / usual if (usual := self._usual) > 0 else 0.0
