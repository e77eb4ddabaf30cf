"""Every choice of a bound by its name: this stands above the default's methods and the papers' alike."""
