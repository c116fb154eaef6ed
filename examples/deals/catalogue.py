"""What the shop sells, generated: the deals of a category change every hour, as a seed decides."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from msgspec import Struct

CATEGORIES = (
    "electronics", "computers", "kitchen", "home", "toys", "books",
    "garden", "sports", "beauty", "tools", "pets", "music",
)  # fmt: skip
"""In the order of how many people care for them."""

_MAKERS = ("Norda", "Lumo", "Vesper", "Ardent", "Pico", "Halden", "Mirto", "Quill", "Tessa", "Orbit")
_THINGS = {
    "electronics": ("headphones", "soundbar", "power bank", "smart plug"),
    "computers": ("keyboard", "monitor", "router", "SSD 1 TB"),
    "kitchen": ("kettle", "pan set", "coffee mill", "knife block"),
    "home": ("desk lamp", "curtains", "clothes rack", "fan"),
    "toys": ("building blocks", "puzzle", "marble run", "kite"),
    "books": ("atlas", "cookbook", "novel", "dictionary"),
    "garden": ("hose", "pruning shears", "planter", "rain gauge"),
    "sports": ("yoga mat", "dumbbells", "bike light", "water bottle"),
    "beauty": ("hair dryer", "shaver", "hand cream", "mirror"),
    "tools": ("drill", "spirit level", "socket set", "work light"),
    "pets": ("cat tree", "leash", "feeder", "aquarium pump"),
    "music": ("ukulele", "metronome", "microphone", "drum pad"),
}
_STATES = ("", "", "", "", "", "", " (refurbished)", " (used)")


class Deal(Struct, frozen=True):
    """One product at a lower price. Money is in cents; `discount` in percent."""

    asin: str
    title: str
    category: str
    price: int
    was: int
    discount: int
    rating: float
    reviews: int


@lru_cache(maxsize=1024)
def deals_of(category: str, hour: int, seed: int = 0) -> tuple[Deal, ...]:
    """The deals of a category in an hour (hours since the epoch): always the same for the same seed.

    >>> deals_of("toys", 3) == deals_of("toys", 3)
    True
    """
    # Seeding with a text does not depend on PYTHONHASHSEED.
    draws = Random(f"{seed}/{category}/{hour}")
    return tuple(_deal(category, draws) for _ in range(draws.randint(20, 40)))


def product(asin: str, hour: int, seed: int = 0) -> dict[str, str | int]:
    """What the API tells about one product: its price changes with the hour, too."""
    draws = Random(f"{seed}/{asin}/{hour}")
    return {"asin": asin, "price": draws.randint(500, 50_000), "stock": draws.randint(0, 300)}


def _deal(category: str, draws: Random) -> Deal:
    was = round(draws.lognormvariate(8.3, 0.8))  # about 40 € in the middle, seldom over 300 €
    discount = min(80, 5 + round(draws.expovariate(1 / 18)))
    return Deal(
        asin=f"B{draws.randrange(36**9):09d}"[:10],
        title=f"{draws.choice(_MAKERS)} {draws.choice(_THINGS[category])}{draws.choice(_STATES)}",
        category=category,
        price=was * (100 - discount) // 100,
        was=was,
        discount=discount,
        rating=round(min(5.0, max(1.0, draws.gauss(4.1, 0.5))), 1),
        reviews=round(draws.lognormvariate(4.5, 1.4)),
    )
