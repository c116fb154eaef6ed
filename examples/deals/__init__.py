"""A deals service in front of a paid API: see docs/deals.md."""
