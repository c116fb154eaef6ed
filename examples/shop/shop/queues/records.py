"""What the jobs of each queue carry.

Written by `accoda generate` from queues.yaml; change that, and generate again.
"""

from accoda.contract.wire import Int64, RecordCodec, Struct, Wire


class EmailsJob(Struct, kw_only=True, gc=False):
    """One email to one customer."""

    job_id: int = 0
    attempts: int = 0
    prev_start_time: int | None = None
    to: str
    """The address."""
    subject: str
    body: bytes
    """The text, as UTF-8."""
    user_id: Int64


class _EmailsShape(Struct, array_like=True, gc=False):
    to: str
    subject: str
    body: bytes
    user_id: Int64


def serialize_emails(job: EmailsJob) -> bytes:
    """The job's fields as a msgpack array, or a `ContractError` that names the one that is wrong."""
    values = (job.to, job.subject, job.body, job.user_id)
    try:
        if (
            type(job.to) is str
            and type(job.subject) is str
            and type(job.body) is bytes
            and type(job.user_id) is int
            and job.user_id <= 0x7FFFFFFFFFFFFFFF
        ):
            return _emails_encode(values)
    except (ValueError, OverflowError) as error:
        raise _emails_wire.unfit(error, values) from error
    return _emails_wire.checked(values)


def deserialize_emails(
    data: bytes, job_id: int = 0, attempts: int = 0, prev_start_time: int | None = None
) -> EmailsJob:
    """The job of a payload, or a `ContractError` that names the field that cannot be read."""
    try:
        found = _emails_decode(data)
    except Exception as error:
        raise _emails_wire.unreadable(error, data) from error
    return EmailsJob(
        job_id=job_id,
        attempts=attempts,
        prev_start_time=prev_start_time,
        to=found.to,
        subject=found.subject,
        body=found.body,
        user_id=found.user_id,
    )


_emails_wire = Wire("emails", _EmailsShape)
_emails_encode = _emails_wire.encode
_emails_decode = _emails_wire.decode
codec_of_emails = RecordCodec(EmailsJob, serialize_emails, deserialize_emails)


class NewOrdersJob(Struct, kw_only=True):
    """An order that has just been placed."""

    job_id: int = 0
    attempts: int = 0
    prev_start_time: int | None = None
    order_id: Int64
    user_id: Int64
    email: str
    items: list[str]
    """What was ordered, by name."""
    cents: list[Int64]
    """What each of the items costs."""
    coupon: str | None = None


class _NewOrdersShape(Struct, array_like=True):
    order_id: Int64
    user_id: Int64
    email: str
    items: list[str]
    cents: list[Int64]
    coupon: str | None = None


def serialize_new_orders(job: NewOrdersJob) -> bytes:
    """The job's fields as a msgpack array, or a `ContractError` that names the one that is wrong."""
    values = (job.order_id, job.user_id, job.email, job.items, job.cents, job.coupon)
    return _new_orders_wire.checked(values)


def deserialize_new_orders(
    data: bytes, job_id: int = 0, attempts: int = 0, prev_start_time: int | None = None
) -> NewOrdersJob:
    """The job of a payload, or a `ContractError` that names the field that cannot be read."""
    try:
        found = _new_orders_decode(data)
    except Exception as error:
        raise _new_orders_wire.unreadable(error, data) from error
    return NewOrdersJob(
        job_id=job_id,
        attempts=attempts,
        prev_start_time=prev_start_time,
        order_id=found.order_id,
        user_id=found.user_id,
        email=found.email,
        items=found.items,
        cents=found.cents,
        coupon=found.coupon,
    )


_new_orders_wire = Wire("new_orders", _NewOrdersShape)
_new_orders_encode = _new_orders_wire.encode
_new_orders_decode = _new_orders_wire.decode
codec_of_new_orders = RecordCodec(NewOrdersJob, serialize_new_orders, deserialize_new_orders)


class InvoicesJob(Struct, kw_only=True, gc=False):
    """An invoice to be written. They are numbered without gaps, a batch at a time."""

    job_id: int = 0
    attempts: int = 0
    prev_start_time: int | None = None
    order_id: Int64
    user_id: Int64
    email: str
    total_cents: Int64
    vat: float = 0.19
    """The share of tax in it; new in the second version."""
    paid: bool = False


class _InvoicesShape(Struct, array_like=True, gc=False):
    order_id: Int64
    user_id: Int64
    email: str
    total_cents: Int64
    vat: float = 0.19
    paid: bool = False


def serialize_invoices(job: InvoicesJob) -> bytes:
    """The job's fields as a msgpack array, or a `ContractError` that names the one that is wrong."""
    values = (job.order_id, job.user_id, job.email, job.total_cents, job.vat, job.paid)
    try:
        if (
            type(job.order_id) is int
            and job.order_id <= 0x7FFFFFFFFFFFFFFF
            and type(job.user_id) is int
            and job.user_id <= 0x7FFFFFFFFFFFFFFF
            and type(job.email) is str
            and type(job.total_cents) is int
            and job.total_cents <= 0x7FFFFFFFFFFFFFFF
            and type(job.vat) is float
            and type(job.paid) is bool
        ):
            return _invoices_encode(values)
    except (ValueError, OverflowError) as error:
        raise _invoices_wire.unfit(error, values) from error
    return _invoices_wire.checked(values)


def deserialize_invoices(
    data: bytes, job_id: int = 0, attempts: int = 0, prev_start_time: int | None = None
) -> InvoicesJob:
    """The job of a payload, or a `ContractError` that names the field that cannot be read."""
    try:
        found = _invoices_decode(data)
    except Exception as error:
        raise _invoices_wire.unreadable(error, data) from error
    return InvoicesJob(
        job_id=job_id,
        attempts=attempts,
        prev_start_time=prev_start_time,
        order_id=found.order_id,
        user_id=found.user_id,
        email=found.email,
        total_cents=found.total_cents,
        vat=found.vat,
        paid=found.paid,
    )


_invoices_wire = Wire("invoices", _InvoicesShape)
_invoices_encode = _invoices_wire.encode
_invoices_decode = _invoices_wire.decode
codec_of_invoices = RecordCodec(InvoicesJob, serialize_invoices, deserialize_invoices)
