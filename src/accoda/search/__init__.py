"""Jobs that fit a filter, found by bounded looks: for the pages of `accoda.admin.jobs`, and for bulk changes."""

from accoda.search.filter import JobFilter, check_filter, matcher
from accoda.search.own import kept_by_us
from accoda.search.search import Found, Search, Where

__all__ = ["Found", "JobFilter", "Search", "Where", "check_filter", "kept_by_us", "matcher"]
