"""Storages whose `browse` goes wrong."""

from __future__ import annotations

from accoda.model import ENDED, Cursor, Order, State
from accoda.storage.memory.queue import MemoryQueue, Record
from proof.mutants.mutant import BrokenQueue, mutant

_LINE = "TestBrowseInLine::test_goes_by_what_orders_the_state_then_by_id"
_PAGES = "TestBrowseInLine::test_page_by_page_shows_each_job_once"


@mutant("every listing goes by id", _LINE)
class BrowseByIdOnly(BrokenQueue):
    class Queue(MemoryQueue):
        def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
            return super().page(state, "id", after, limit)


@mutant("a walk by id follows the line", "TestBrowseById::test_goes_by_id_whatever_the_line_is")
class BrowseInLineOnly(BrokenQueue):
    class Queue(MemoryQueue):
        def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
            records = super().page(state, "line", None, 1 << 20)
            return [each for each in records if after is None or order == "line" or each.id > after.id][:limit]


@mutant("what ended first comes first", _LINE)
class BrowseTheOldestFirst(BrokenQueue):
    class Queue(MemoryQueue):
        def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
            if order == "id" or state not in ENDED:
                return super().page(state, order, after, limit)
            begin = None if after is None else (after.sort, after.id)
            records = super().page(state, order, None, 1 << 20)[::-1]
            return [each for each in records if begin is None or (each.ended_at or 0, each.id) > begin][:limit]


@mutant("a page begins with the last job of the page before", _PAGES)
class BrowseRepeatsAJob(BrokenQueue):
    class Queue(MemoryQueue):
        def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
            last = self.states[state].get(after.id) if after is not None else None
            page = super().page(state, order, after, limit)
            return [last, *page][:limit] if last is not None and page else page


@mutant("a page leaves out jobs that are equal in what orders them", _PAGES, by_machine=False)
class BrowseSkipsEqualJobs(BrokenQueue):
    class Queue(MemoryQueue):
        def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
            end = 0 if state in ENDED else (1 << 63) - 1
            skip = Cursor(after.sort, end) if after is not None and order == "line" else after
            return super().page(state, order, skip, limit)
