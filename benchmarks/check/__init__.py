"""`make bench-check`: has Accoda become slower? Ratios to a queue that never changes, beside the committed ones."""
