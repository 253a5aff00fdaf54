"""Closed-loop evaluation: plans of keyed episodes, rollouts, a journal that loses none, engines that run them.

Worlds and policies are known only by the protocols in `contract.py`; `adapters/` provides the real ones.
"""
