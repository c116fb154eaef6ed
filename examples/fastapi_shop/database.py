"""The shop's own tables, in the same PostgreSQL as its jobs."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends
from sqlalchemy import ARRAY, BigInteger, String
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL = os.environ.get("SHOP_DATABASE", "postgresql://postgres:postgres@localhost/postgres")

engine = create_async_engine(URL.replace("postgresql://", "postgresql+asyncpg://", 1))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """What somebody ordered. `job` packs it."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    items: Mapped[list[str]] = mapped_column(ARRAY(String))
    state: Mapped[str] = mapped_column(default="ordered")
    job: Mapped[int | None] = mapped_column(BigInteger, default=None)


async def create_tables() -> None:
    """Create what is not there yet. A real shop has migrations."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)


async def get_session() -> AsyncIterator[AsyncSession]:
    """A session for one request, or for one run of a handler."""
    async with sessions() as session:
        yield session


# Closed before the answer is sent: a stream of events would hold a connection for as long as it lasts.
Session = Annotated[AsyncSession, Depends(get_session, scope="function")]
