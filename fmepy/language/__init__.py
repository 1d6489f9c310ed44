"""The model language: nodes, derivatives, text, and equations made of them."""
