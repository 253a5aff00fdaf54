"""Where `qhead choose-decoder` was used: demonstrations that go two ways, and a LIBERO task where sampling pays."""
