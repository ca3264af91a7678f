"""What a tool is: its definition, its input and output, its schema in the dialects of the providers."""
