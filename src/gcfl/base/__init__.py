"""What every room needs: the words of the system, errors, randomness, settings, files.

No logic of the field is in here.
"""
