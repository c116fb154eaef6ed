"""Jobs in Redis: one server, a Sentinel set, or a Cluster."""
