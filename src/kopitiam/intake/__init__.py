"""CSV text to normal form: blocks of whole rows, conversion of cells, rejected rows. No network."""
