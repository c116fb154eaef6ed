"""Storages whose `place` goes wrong."""

from __future__ import annotations

from msgspec.structs import replace

from accoda.model import Place
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.place import place_of
from accoda.testing.mutant import Mutant


class PlaceByIdOnly(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        seen = await super().place(id, most)
        if seen is None or seen.job.state not in ("ready", "delayed"):
            return seen
        older = [each for each in self._lines[seen.job.queue].ready if each < id]
        return replace(seen, ahead=len(older), newer=0)


class PlaceCountsItself(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        seen = await super().place(id, most)
        waits = seen is not None and seen.job.state == "ready"
        return replace(seen, ahead=seen.ahead + 1) if seen is not None and waits else seen


class PlaceAppliesNothing(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        with self._lock:
            now = self._now()
            record = self._up_to_date(id, now)
            return place_of(record, most, now) if record else None


class PlaceForgetsItsOwnMoment(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        with self._lock:
            now = self._now()
            record = self._jobs.get(id)
            if record is not None:
                self._apply_due(record.line, now)
            return place_of(record, most, now) if record else None


class PlaceOfTheDelayedIsNone(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        seen = await super().place(id, most)
        return seen if seen is None or seen.job.state == "ready" else replace(seen, ahead=0, newer=0)


class PlaceIsSureOfItself(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        seen = await super().place(id, most)
        return seen and replace(seen, ahead=seen.ahead if seen.exact else seen.ahead + 1, exact=True)


class PlaceTakesHalfForAnAnswer(MemoryStorage):
    async def place(self, id: int, most: int = 1000) -> Place | None:
        seen = await super().place(id, most)
        if seen is None or seen.exact:
            return seen
        return replace(seen, ahead=len(self._lines[seen.job.queue].ready) // 2)


_ORDER = "TestPlace::test_goes_by_rank_then_id_as_take_does"
_LONG = "TestPlaceInALongLine::test_is_about_right_in_between_and_says_so"

PLACE: dict[str, Mutant] = {
    "place-by-id-only": Mutant(0, "a place in the line overlooks ranks", _ORDER, PlaceByIdOnly),
    "place-counts-itself": Mutant(0, "a job stands ahead of itself", _ORDER, PlaceCountsItself),
    "place-applies-nothing": Mutant(
        0,
        "a place overlooks those whose time has come",
        "TestPlaceAndWhatIsDue::test_others_whose_time_has_come_stand_before_it",
        PlaceAppliesNothing,
        by_machine=False,  # it looks after every command
    ),
    "place-forgets-its-own-moment": Mutant(
        0,
        "where much is due, a job whose time has come still waits for it",
        "TestPlaceAndWhatIsDue::test_is_up_to_date_however_much_else_is_due",
        PlaceForgetsItsOwnMoment,
        by_machine=False,  # the same, and there is never so much
    ),
    "place-of-the-delayed-is-none": Mutant(
        0,
        "a delayed job has nobody ahead",
        "TestPlace::test_of_a_delayed_job_is_where_it_would_stand_by_now",
        PlaceOfTheDelayedIsNone,
    ),
    "place-is-sure-of-itself": Mutant(
        0,
        "an estimate says that it is exact",
        _LONG,
        PlaceIsSureOfItself,
        by_machine=False,  # lines are short there
    ),
    "place-takes-half-for-an-answer": Mutant(
        0,
        "an estimate is the middle of the line",
        _LONG,
        PlaceTakesHalfForAnAnswer,
        by_machine=False,  # the same
    ),
    "sqlite-place-by-rank-only": Mutant(
        0,
        "of equal ranks, those that came later stand before a job",
        _ORDER,
        sqlite=("line_before", "AND id < ?3", "AND id <> ?3"),
        by_machine=False,  # found as in memory, but in a file it takes long
    ),
    "sqlite-place-measures-half": Mutant(
        0,
        "lanes are measured by their first half",
        _LONG,
        sqlite=("lane_up", "max(id)", "(min(id) + max(id)) / 2"),
        by_machine=False,  # lines are short there
    ),
}
