"""Simulated fleets: what a run would record on nodes with known faults and known noise, without any node."""
