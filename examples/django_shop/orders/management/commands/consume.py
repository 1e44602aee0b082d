"""The kitchen: a process of its own beside the web server's."""

from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandParser

import bolide
from orders.models import Order


class Command(BaseCommand):
    """`python manage.py consume`."""

    help = "Cook what was ordered, until it is stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--count", type=int, help="end after this many")

    def handle(self, *_: Any, count: int | None = None, **__: Any) -> None:
        oldest = bolide.StartFrom.oldest()
        with bolide.Consumer("kitchen", settings.ORDERS_TOPIC, settings.NAMESRV_ADDR, start_from=oldest) as consumer:
            for number, message in enumerate(consumer, 1):
                order_id = message.json()["id"]
                Order.objects.filter(pk=order_id).update(is_cooked=True)  # a message may come twice: so may this
                self.stdout.write(f"cooked order {order_id}")
                if number == count:
                    message.ack()
                    break
