"""`bolide doctor`: what is known to go wrong with a cluster, looked for and told with the way out."""
