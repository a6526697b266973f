"""Where the state lives, whether it is used, and what that foretells: five architectures on three tasks."""
