"""What a Python user would pick instead, measured in one run with Bolide's client."""
