"""A task scheduler: priorities, start times and dead letters, over HTTP, with what `redis-cli` shows of it."""
