"""What several rooms need. Nothing here imports any of them."""
