"""The method's maths, with torch alone: levels, ordered quantiles, losses, heads, decoders, calibration, theory."""
