"""The bare engines: the same fenced work, written as short as it can be, with no queue around it."""
