r"""Orders enriched by a table of customers.

Both topics have the customer as key, so that an order meets its customer in the same task.  An order
is joined with the customer as known when the order is processed; a customer who moves later changes
nothing in the past.

    python topology_examples/05_orders.py
    streams run topology_examples/05_orders.py --input customers=customers.jsonl --input orders=orders.jsonl \
        --output invoices=-
"""

from datetime import UTC, datetime

from attrs import frozen

from streams import StreamsBuilder, Topic


@frozen
class Customer:
    """A customer as of ``since``."""

    id: str
    name: str
    city: str
    since: datetime


@frozen
class Order:
    """An order by the customer whose id is ``customer``."""

    number: int
    customer: str
    cents: int
    at: datetime


@frozen
class Invoice:
    """An order with what is known of its customer."""

    number: int
    cents: int
    name: str | None
    city: str | None


customers = Topic(
    "customers",
    key=str,
    value=Customer,
    timestamp=lambda customer: customer.since,
    key_from=lambda customer: customer.id,
)
orders = Topic("orders", key=str, value=Order, timestamp=lambda order: order.at, key_from=lambda order: order.customer)
invoices = Topic("invoices", key=str, value=Invoice)


def invoice(order: Order, customer: Customer | None) -> Invoice:
    """Return the invoice for an order; its customer may be unknown."""
    if customer is None:
        return Invoice(order.number, order.cents, None, None)
    return Invoice(order.number, order.cents, customer.name, customer.city)


def topology(builder: StreamsBuilder) -> None:
    """Write an invoice for each order that is worth something."""
    table = builder.table(customers, name="customers")
    (builder.stream(orders).filter(lambda _, order: order.cents > 0).left_join(table, invoice).to(invoices))


def main() -> None:
    """Print the invoices for a few orders, before and after a customer moves."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    first = datetime(2026, 3, 1, tzinfo=UTC)

    driver.pipe(customers, Customer("c1", "Ada", "London", first), key="c1")
    driver.pipe(orders, Order(1, "c1", 1250, first.replace(day=2)), key="c1")
    driver.pipe(orders, Order(2, "c2", 990, first.replace(day=3)), key="c2")
    driver.pipe(customers, Customer("c1", "Ada", "Paris", first.replace(day=4)), key="c1")
    driver.pipe(orders, Order(3, "c1", 400, first.replace(day=5)), key="c1")

    for customer, paper in driver.read(invoices, tombstones=False):
        whom = f"{paper.name or 'unknown'}, {paper.city or '?'}"
        print(f"order {paper.number}  {customer}  {paper.cents / 100:6.2f}  {whom}")


if __name__ == "__main__":
    main()
