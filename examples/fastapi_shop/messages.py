"""What the jobs of the shop carry. All that a producer has to know."""

from pydantic import BaseModel, Field

PACKING = "packing"


class PackOrder(BaseModel):
    """Pack an order: the number of its record."""

    order: int


class Parcel(BaseModel):
    """What comes of it."""

    order: int
    items: int = Field(ge=1)
    label: str
