"""What a job says of itself: its plan before it runs, its report, and the summary that terminal and pages show. Private."""
