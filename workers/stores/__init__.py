"""Arrays on their way in and out of a run: files, and the check at the door."""
