"""Those that descant is timed beside. Each is a module that trains by turns (`speed_turns`)."""
