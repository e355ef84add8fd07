"""The HTTP service: stores chunks durably and serves answers. Gateways hold no state of their own."""
