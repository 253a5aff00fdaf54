"""Makes the base checkpoint of the tiny variant: scripted data in varied scenes, auxiliary losses, one trainer."""
