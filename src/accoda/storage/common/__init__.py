"""What engines share: call batching, wake-ups, event loop affinity, reconnecting."""
