"""A run as one page: figures, evidence and beliefs as HTML with drawn plots, from values alone.

The page is one file: no script, no network, nothing that a log says is taken for markup. `page.render_page` makes it.
"""
