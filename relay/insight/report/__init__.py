"""The HTML page of a run: figures, evidence and beliefs with drawn plots, from values alone.

The page is one file without script or network access; no text of a log becomes markup. `page.render_page` makes it.
"""
