"""Other tools: their recordings read and written, our strategies inside them."""
