"""Files of the work tree: walks that no link leads astray, writes that no crash leaves half done."""
