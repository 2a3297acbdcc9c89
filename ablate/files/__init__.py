"""Files, whatever is in them."""
