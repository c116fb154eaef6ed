"""Payloads and results that are pydantic models."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, Field, HttpUrl, SecretStr

from accoda import App, InvalidInput
from accoda.payload import Codec, UnreadablePayload, converted, decode, encode


class Line(BaseModel):
    text: str
    raw: bytes = b"\xff"


class Order(BaseModel):
    number: int = Field(gt=0, alias="orderNumber")
    at: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    id: UUID = UUID(int=7)
    url: HttpUrl = HttpUrl("https://example.com/x")
    file: Path = Path("/tmp/x")
    lines: list[Line] = []


class Wrapped(msgspec.Struct):
    orders: list[Order]


class Hidden(BaseModel):
    card: SecretStr


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        (Order, Order(orderNumber=1, lines=[Line(text="a")])),
        (Wrapped, Wrapped([Order(orderNumber=1)])),
        (list[Line], [Line(text="a"), Line(text="b")]),
        (Line | None, None),
    ],
)
def test_a_model_comes_back_as_it_was(type: Any, payload: object) -> None:
    codec: Codec[Any] = Codec(type)
    assert codec.decode(codec.encode(payload)) == payload


def test_it_is_stored_by_the_names_of_its_fields_and_read_by_name_or_alias() -> None:
    codec: Codec[Order] = Codec(Order)
    assert decode(codec.encode(Order(orderNumber=3)))["number"] == 3
    assert codec.decode(codec.encode({"orderNumber": 3})) == codec.decode(codec.encode({"number": 3}))
    assert converted({"orderNumber": 3}, Order) == Order(orderNumber=3)  # as HTTP and schedules do


def test_what_does_not_fit_is_refused_with_the_field() -> None:
    codec: Codec[Order] = Codec(Order)
    with pytest.raises(InvalidInput, match="payload: does not fit Order: orderNumber: Field required"):
        codec.encode({})
    broken = Order.model_construct(number="x")
    with pytest.raises(InvalidInput, match="does not fit Order: number: Input should be a valid integer"):
        codec.encode(broken)
    with pytest.raises(InvalidInput, match=r"Wrapped: orders\[0\]: number: Input should be greater than 0"):
        Codec(Wrapped).encode({"orders": [{"number": 0}]})
    with pytest.raises(UnreadablePayload, match="the payload is no Order: "):
        codec.decode(encode(7))
    with pytest.raises(InvalidInput, match="SecretStr would be readable in the store; send a reference"):
        Codec(Hidden).encode(Hidden(card=SecretStr("4111")))


async def test_handlers_take_and_return_models() -> None:
    app = App("memory://")

    @app.handler("orders", keep_for=60, cost="number")
    async def handle(order: Order) -> Line:
        return Line(text=str(order.number))

    told = await handle.enqueue(Order(orderNumber=5))
    await app.run_until_idle()
    assert await told.result() == Line(text="5")
