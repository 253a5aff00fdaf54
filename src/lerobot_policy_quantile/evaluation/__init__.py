"""Closed-loop evaluation: plans of keyed episodes, rollouts, a journal that loses none, engines that run them.

The package knows worlds and policies only by the protocols in `contract`; the command line brings the real ones.
"""
