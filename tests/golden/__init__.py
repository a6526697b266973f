"""What our own components compute and their defaults, pinned for each `revision`.

Run ids hash a component's name, its revision and the settings that differ from the defaults: a change of behaviour or
of a default under the same revision would give new results the names of old ones.
"""
