"""A small SVG kit: panels, marks, figures, colours. Knows nothing of what it draws."""
