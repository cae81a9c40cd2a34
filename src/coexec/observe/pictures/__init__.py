"""Pictures of runs, plans and sweeps: SVG, pages, Graphviz text and Perfetto files."""
