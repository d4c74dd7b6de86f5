"""Texts whose words have tags: names, parts of speech."""
