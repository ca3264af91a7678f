"""The migrations of the store's schema, which run by themselves and only forward."""
