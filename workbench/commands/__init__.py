"""Commands of the command line, one module per topic. `workbench.cli` joins their `COMMANDS`.

Modules here import only what argument parsing needs; what a command does is imported when it runs, so that
`workbench --help` answers at once.
"""
