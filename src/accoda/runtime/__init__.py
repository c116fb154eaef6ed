"""The runtime: handlers, batches, processors, the worker that owns them, and the manager over all workers."""
