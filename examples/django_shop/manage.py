"""Messages in a Django application: what is saved is sent once its transaction is committed, and a command consumes.

pip install bolide django
cd examples/django_shop
python manage.py migrate --run-syncdb
python manage.py runserver 8000 &
curl -d what='two teas' http://127.0.0.1:8000/orders    # saved, and sent after the commit (orders/views.py)
python manage.py consume                                # what a worker process does (orders/management/commands)
"""

import os

from django.conf import settings
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="for an example",
        ROOT_URLCONF="orders.views",
        INSTALLED_APPS=["orders"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("ORDERS_DB", "orders.db")}
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        NAMESRV_ADDR=os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"),
        ORDERS_TOPIC="DjangoOrders",
    )
    execute_from_command_line()
