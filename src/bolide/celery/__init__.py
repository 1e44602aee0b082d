"""Celery on Bolide: a transport of kombu whose queues are topics, and whose deliveries are popped messages.

app = Celery("shop", broker="bolide://127.0.0.1:9876")
"""
