"""What a server counts, and the page on which Prometheus reads it: counters, histograms and text, no I/O."""
