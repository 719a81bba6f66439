"""What a run leaves behind: its folder, its records, its measures; written and read here."""
