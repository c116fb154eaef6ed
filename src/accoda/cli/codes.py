"""Exit codes, of every command.

    0    done
    1    the answer is no: not found, the job failed, the filter matched nothing, something is wrong
    2    wrong use: an unknown option, a value that cannot be used, a question without a terminal to ask it on
    3    the store cannot be reached or used
    130  stopped by Ctrl-C
    141  the reader of the output has gone (`| head`)

`accoda worker`, `accoda doctor` and `accoda contract diff` have more exit codes; see their help.
"""

from __future__ import annotations

from accoda.errors import AccodaError, InvalidInput, SettingsError, StorageError

DONE, NO, WRONG_USE, NO_STORE, STOPPED, UNREAD = 0, 1, 2, 3, 130, 141


def exit_code(error: AccodaError) -> int:
    """With which code an error ends a command.

    >>> from accoda.errors import JobNotFound, StorageUnavailable
    >>> exit_code(JobNotFound(7)), exit_code(InvalidInput("rank", "?")), exit_code(StorageUnavailable("?"))
    (1, 2, 3)
    >>> exit_code(SettingsError("jobs.toml: …"))
    2
    """
    if isinstance(error, StorageError):
        return NO_STORE
    return WRONG_USE if isinstance(error, (InvalidInput, SettingsError)) else NO
