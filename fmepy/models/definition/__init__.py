"""What a model is, whatever it came from: text, a traced function, any function."""
