"""The subcommands of `latentmas-obf` that read finished results."""
