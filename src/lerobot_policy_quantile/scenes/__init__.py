"""Simulated worlds behind one small contract, and the scripted expert that moves in them."""
