"""Tests of the gRPC face."""
