"""The measurements behind every speed claim; each module says how to repeat it."""
