"""Real tools on real projects, installed from their registries; `make toolchains` runs them, `make test` does not."""
