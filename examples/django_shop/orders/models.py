"""What is ordered."""

from django.db import models


class Order(models.Model):
    """One order, and whether the kitchen is done with it."""

    what = models.CharField(max_length=80)
    is_cooked = models.BooleanField(default=False)
