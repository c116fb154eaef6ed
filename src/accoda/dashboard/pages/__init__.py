"""One module for each page: its views, its actions, and their routes."""
