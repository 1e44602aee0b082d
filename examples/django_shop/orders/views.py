"""Orders by HTTP."""

from functools import cache

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

import bolide
from orders.models import Order


@cache
def producer() -> bolide.Producer:
    """One for the process, opened by its first message: of gunicorn's workers each has its own."""
    opened = bolide.Producer("django-web", settings.NAMESRV_ADDR)
    opened.start()
    return opened


def orders(request: HttpRequest) -> JsonResponse:
    if request.method == "GET":
        return JsonResponse({"orders": list(Order.objects.values("id", "what", "is_cooked"))})
    what = request.POST.get("what", "")
    if not what:
        return JsonResponse({"problem": "an order needs some text"}, status=400)
    with transaction.atomic():
        order = Order.objects.create(what=what)
        # A message of what was rolled back would be a lie. If the process dies between the two, none is sent: where
        # that may not be, a transactional message decides by what the database says (examples/transfer.py).
        transaction.on_commit(lambda: producer().send(settings.ORDERS_TOPIC, json={"id": order.pk}, keys=str(order.pk)))
    return JsonResponse({"id": order.pk}, status=202)


urlpatterns = [path("orders", orders)]
