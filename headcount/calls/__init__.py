"""The functions of the face, by what they answer. Private: `headcount` has them all."""
