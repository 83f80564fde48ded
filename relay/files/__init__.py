"""Files: walks that no link leads astray, writes that no crash leaves half done, YAML and TOML with limits."""
