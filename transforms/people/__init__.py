"""Questions about people, wired. Private."""
