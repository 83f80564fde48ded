"""git by plumbing: running it, its objects, its status, its hooks. Knows no phase and no plan; would serve any tool."""
