"""What predicted distributions are good for: bounds, alarms, acting on them (`scripts/doubt.py`)."""
