"""Figure 9: learned positions or none."""
