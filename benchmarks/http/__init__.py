"""What the HTTP service costs over a bare endpoint that does nothing."""
