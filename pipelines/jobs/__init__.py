"""Running a job from files to a committed output. Private."""
