"""Models trained so that a chosen route holds: what verdicts, and any other tool, can be tested against."""
