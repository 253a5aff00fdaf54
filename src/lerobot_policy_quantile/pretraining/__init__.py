"""Pretraining of the tiny variant's base checkpoint: scripted data in randomised scenes, auxiliary losses, trainer."""
