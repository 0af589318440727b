"""Speed, as ratios to a floor that is taken in the same run. Never asserted as a time in a test."""
