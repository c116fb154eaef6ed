"""Jobs of customers: what lanes cost, how soon a small customer starts, and how well a limit for each is used."""
