from django.db import models


class Order(models.Model):
    """What a task leaves behind, so that a test can count its runs."""

    number = models.IntegerField()
    note = models.TextField(default="")
