"""CSV text on its way into normal form: blocks of whole rows, conversion, rejected rows."""
