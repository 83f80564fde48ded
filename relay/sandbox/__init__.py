"""Runs commands in a kernel sandbox, with limits, and ends their process trees.

The room owns every process that a session or a gate requests. It reads no plan, no configuration file and no git; a
`Policy` holds the rules.

run opens a sandbox, proves it and runs commands in it; policy has its rules and limits. bwrap confines a command with
bubblewrap, view lays out the file system that it sees, places finds the paths to hide, protect or show, and toolchains
knows the tools' files and variables. command runs a command to its end, process watches a process tree, child keeps a
program for a whole session. openings are ways out to hosts and ports. private_folder has files for one sandbox, and
visibility describes what commands see. inside and supervisor are programs of their own.
"""
