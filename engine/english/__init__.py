"""Written English as one says it. Independent of models and voices: it imports no other part of Parley."""
