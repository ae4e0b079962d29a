"""Converts written English to spoken words. Independent of models and voices: it imports no other part of Parley."""
