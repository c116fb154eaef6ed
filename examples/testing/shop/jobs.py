"""What the shop does beside its requests."""

from __future__ import annotations

from dataclasses import dataclass

from accoda import App, Demand, Waiter

app = App("redis://localhost:6379")
app.budget("carrier", capacity=2, refill=2, per=60)


@dataclass
class Order:
    id: int
    item: str
    email: str = "anna@example.com"


class Mail:
    """Stands for a mail server."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.greylisted = False

    def send(self, to: str, subject: str) -> None:
        if self.greylisted:
            raise ConnectionError("try again later")
        self.sent.append((to, subject))


mail = Mail()


@app.handler("emails", retry=60, max_attempts=3)
def confirm(order: Order) -> None:
    mail.send(order.email, f"Order {order.id}")


@app.handler("reminders")
async def remind(order: Order) -> None:
    mail.send(order.email, f"How do you like your {order.item}?")


@app.handler("prices", keep_for=60)
async def price(item: str) -> int:
    return {"tea": 450, "cup": 790}[item]


@app.handler("payments", keep_for=60)
async def charge(order: Order) -> int:
    return await (await price.enqueue(order.item)).result()


@app.handler("parcels", budget="carrier", cost=1)
async def ship(order: Order) -> None: ...


@app.cron("0 7 * * *", tz="Europe/Rome")
async def digest() -> None:
    mail.send("owner@example.com", "Yesterday's orders")


stock: Demand[int] = app.demand("stock", fresh_for=60)
told: dict[str, int] = {}


@stock.fetch
async def count_stock(item: str) -> int:
    return len(item)


@stock.deliver
async def tell(waiter: Waiter[None], pieces: int) -> None:
    told[waiter.id] = pieces


def place(order: Order) -> None:
    """What a view does: a confirmation now, a question in a week."""
    confirm.sync.enqueue(order, priority="HIGH", headers={"shop": "rome"})
    remind.sync.enqueue(order, delay=7 * 86_400)
