"""Values of tuning: keys, problems, trials, decisions and events."""
