"""Several brokers that keep one log: who is asked, who copies, and how a broker changes its role."""
