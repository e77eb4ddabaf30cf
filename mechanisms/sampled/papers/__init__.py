"""Methods of the papers for samples that no default takes: cohorts that are drawn before their data is seen."""
