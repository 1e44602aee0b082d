"""What the broker does for each request code; a processor is given the few things it uses, and gives its handlers."""
