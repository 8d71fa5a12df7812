"""A web service: orders come in by POST, the revenue of customers is asked for by GET, and is a table of Postgres.

It may be killed: an answered order is in the log, and one that a client sends again, with its id, counts once.

    pip install '.[avro,postgres,web]' fastapi
    DATABASE=postgresql://localhost/shop uvicorn --app-dir topology_examples 15_web_service:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from os import environ

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, StreamsError, Topic, ValueAndTimestamp
from streams.connect import PostgresSink, SinkWorker
from streams.formats import avro

FOLDER, REGISTRY = environ.get("FOLDER", "shop-data"), environ.get("REGISTRY", "127.0.0.1:8081")


class Order(BaseModel):
    """What a customer orders, with an id of the client's choice."""

    id: str
    customer: str
    cents: int


class Revenue(BaseModel):
    """What a customer has ordered so far."""

    orders: int = 0
    cents: int = 0


orders = Topic("orders", key=str, value=avro(Order, registry=f"http://{REGISTRY}"))
revenue = Topic("revenue", key=str, value=avro(Revenue, registry=f"http://{REGISTRY}"))


def topology(builder: StreamsBuilder) -> None:
    """Add up the orders of each customer, each order once."""
    unique = builder.stream(orders).deduplicate(within=timedelta(days=1))
    unique.group_by(lambda _, order: order.customer).aggregate(
        Revenue, lambda _, order, old: Revenue(orders=old.orders + 1, cents=old.cents + order.cents), name="revenue"
    ).to_stream().to(revenue)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Run the parts as long as the service; they end in the reverse order, each with a commit."""
    with EmbeddedBroker(FOLDER) as broker, broker.serve_registry(REGISTRY):
        broker.create_topic(orders, partitions=2, exist_ok=True)
        broker.create_topic(revenue, partitions=2, exist_ok=True)
        shop = Streams(topology, application_id="shop", broker=broker, processing_guarantee="exactly_once_v2")
        with SinkWorker(broker, revenue, PostgresSink(environ["DATABASE"], "revenue", create=True), name="to-postgres"):
            async with Producer(broker) as app.state.orders, shop as app.state.shop:
                yield


app = FastAPI(lifespan=running)


@app.post("/orders", status_code=201)
async def add(order: Order) -> None:
    """Answer when the order is in the log."""
    await app.state.orders.send(orders, order, key=order.id)


@app.get("/revenue/{customer}")
def revenue_of(customer: str) -> Revenue | None:
    """Answer from the store of the application; in a thread, since the query waits for the owner of the key."""
    try:
        found: ValueAndTimestamp[Revenue] | None = app.state.shop.store("revenue").get(customer)
    except StreamsError as error:
        raise HTTPException(503, str(error)) from error
    return found.value if found else None
