"""A deploy for test_driver.py: the GPU role alone, on a bare machine."""

from roles import gpu
from roles.facts.site import fast_connection

fast_connection()
gpu.deploy()
