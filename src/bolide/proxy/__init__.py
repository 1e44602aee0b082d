"""The gRPC face: RocketMQ 5's own clients, onto the broker in this process or onto any cluster."""
