"""Model cards: see `card`."""
