"""The shop: a Flask application, and the jobs that it leaves to a worker.

`flask --app examples.flask_shop.shop run` and `accoda worker examples.flask_shop.shop:app`.
"""

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from flask import Flask, Response, abort, current_app, g, jsonify, request, url_for
from msgspec import Struct

from accoda import App

DATABASE = os.environ.get("SHOP_DATABASE", "shop.db")

shop = Flask(__name__)


@contextmanager
def in_the_shop(job: Any) -> Generator[None, None, None]:
    """The application context around each run: `current_app`, `g` and what is closed with them work in handlers."""
    with shop.app_context():
        yield


app = App(os.environ.get("SHOP_JOBS", "sqlite:///shop-jobs.db"), around=[in_the_shop])


def database() -> sqlite3.Connection:
    """The connection of this request, or of this run."""
    connection: sqlite3.Connection | None = g.get("database")
    if connection is None:
        connection = g.database = sqlite3.connect(DATABASE)
        connection.execute("CREATE TABLE IF NOT EXISTS invoices (customer TEXT, total INTEGER)")
    return connection


@shop.teardown_appcontext
def close_database(error: BaseException | None) -> None:
    """At the end of a request, and of a run."""
    connection: sqlite3.Connection | None = g.pop("database", None)
    if connection is not None:
        connection.close()


class Invoice(Struct):
    """What a customer has to pay."""

    customer: str
    total: int


@app.handler("invoices", keep_for=3600, max_attempts=3)
def write_invoice(invoice: Invoice) -> str:
    """A `def` handler runs in a thread of its own, as a view does."""
    with database() as connection:
        row = connection.execute("INSERT INTO invoices VALUES (?, ?)", (invoice.customer, invoice.total)).lastrowid
    return f"{current_app.name} {row}"


@shop.post("/invoices")
def order_invoice() -> tuple[Response, int, dict[str, str]]:
    """202: a worker writes it."""
    asked = request.get_json()
    job = write_invoice.sync.enqueue(Invoice(customer=str(asked["customer"]), total=int(asked["total"])))
    return jsonify(id=job.id), 202, {"Location": url_for("see_invoice", id=job.id)}


@shop.get("/invoices/<int:id>")
def see_invoice(id: int) -> Response:
    """Its number, when it is written."""
    job = app.sync.find(id)
    if job is None or job.queue != write_invoice.queue:
        abort(404)
    result = app.sync.result(id, type=str) if job.state == "done" else None
    return jsonify(state=job.state, result=result)
