"""The language of filters and maps: parsed, evaluated, rendered, analysed."""
