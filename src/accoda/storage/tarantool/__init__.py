"""Jobs in Tarantool, 2.6 or newer: stored functions over memtx spaces, and a small client of our own."""
