"""Grammars of JSON answers: converts a JSON schema to GBNF, the notation of llama.cpp.

Every text of the grammar is valid against its schema. Not every valid text is in the grammar: it has one notation of
white space and of escapes, and objects have no other properties than those that the schema names. A schema that cannot
be enforced is refused, with the JSON path of the reason.

The cost is bounded: a schema may make a limited number of symbols, and a pattern a limited number of states. Knows no
model and no library.
"""
