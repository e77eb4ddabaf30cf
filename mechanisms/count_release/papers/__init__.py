"""Methods of the papers for counts of users that no default takes: Plume, the baseline of the release of counts."""
