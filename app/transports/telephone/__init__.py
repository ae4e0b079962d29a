"""Telephone calls: an exchange brings their sound and keys, and a session answers, whose server plays it out."""
