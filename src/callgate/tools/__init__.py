"""What a tool is: its definition, its input and output, its schema in the dialects of the providers.

| group | modules |
|---|---|
| the tool | `tool`, `options`, `context`, `naming` |
| from a Python type to a parser and a schema | `shapes`, `signature`, `annotations`, `docstrings`, `returns`, `inputs`, `strictness`, `core_rules`, `branches`, `author_errors` |
| reading a model's arguments | `reading`, `json_faults`, `plain_json`, `repair`, `schema_places`, `paths` |
| saying what is wrong with them | `problems`, `pydantic_problems`, `schema_problems`, `schema_words` |
| writing an output | `writing`, `forms`, `limiting`, `spill` |
| providers | `dialects` |
"""  # noqa: E501 - a table
