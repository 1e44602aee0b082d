"""Real clients against a real `bolide up`."""
