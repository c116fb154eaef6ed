"""Private servers for tests: started on free loopback ports in temporary folders, stopped by pid."""
