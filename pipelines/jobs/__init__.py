"""Running a job from files to a committed output, and what it says of itself. Private."""
