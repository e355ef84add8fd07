"""Programs for developers that use the product from outside."""
