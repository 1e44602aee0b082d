"""What the broker counts for RocketMQ's metrics, and the page that shows it."""
