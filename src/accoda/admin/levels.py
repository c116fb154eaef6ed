"""Priority levels of stored jobs: see `accoda.shown.levels`."""

from accoda.shown.levels import LEVELS, Level, level_of, new_rank

__all__ = ["LEVELS", "Level", "level_of", "new_rank"]
