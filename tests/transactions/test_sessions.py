"""What only sessions of SQLAlchemy do: they come from a scope, flush first, and may have several databases."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from accoda import App
from accoda.errors import InvalidInput


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


class Parcel(Base):
    __tablename__ = "parcels_that_no_migration_made"

    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def app(database: str) -> Iterator[App]:
    app = App(database)
    yield app
    app.sync.close()


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database.replace("://", "+psycopg://"))
    yield engine
    engine.dispose()


def ready(app: App, queue: str) -> list[int]:
    return [job.id for job in app.sync.run(app.storage.browse(queue, "ready"))]


def test_a_scoped_session_is_that_of_its_scope(app: App, engine: Engine, queue: str) -> None:
    session = scoped_session(sessionmaker(engine))
    session.add(Order(item="tea"))
    app.sync.enqueue(queue, 1, connection=session)
    session.rollback()
    told = app.sync.enqueue(queue, 2, connection=session)
    session.commit()
    session.remove()
    assert ready(app, queue) == [told.id]


async def test_an_async_scoped_session_is_that_of_its_scope(database: str, queue: str) -> None:
    engine = create_async_engine(database.replace("://", "+asyncpg://"))
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    async with App(database) as app:
        await app.enqueue(queue, 1, connection=session)
        await session.rollback()
        told = await app.enqueue(queue, 2, connection=session)
        await session.commit()
        await session.remove()
        assert [job.id for job in await app.storage.browse(queue, "ready")] == [told.id]
    await engine.dispose()


def test_a_session_with_several_databases_is_asked_for_a_connection(app: App, engine: Engine, queue: str) -> None:
    with Session(binds={Base: engine}) as session:
        with pytest.raises(InvalidInput, match=r"session\.connection\(bind_arguments="):
            app.sync.enqueue(queue, 1, connection=session)
        session.add(Order(item="tea"))
        told = app.sync.enqueue(queue, 2, connection=session.connection(bind_arguments={"mapper": Order}))
        session.commit()
    assert ready(app, queue) == [told.id]


def test_an_error_of_the_flush_is_not_explained_as_one_of_ours(app: App, engine: Engine, queue: str) -> None:
    with Session(engine) as session:
        session.add(Parcel(id=1))
        with pytest.raises(ProgrammingError, match="parcels_that_no_migration_made") as caught:
            app.sync.enqueue(queue, 1, connection=session)
    assert not getattr(caught.value, "__notes__", [])
