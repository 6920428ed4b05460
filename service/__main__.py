"""`python -m service [CONFIG.toml]`: the server without the command line around it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from service.app import EXIT_CANNOT_START, serve
from service.config_file import load_config
from service.errors import ConfigError


def main(words: list[str]) -> int:
    """Serve with the configuration of a file and of the environment."""
    try:
        config = load_config(Path(words[0]) if words else None, os.environ)
    except ConfigError as error:
        sys.stderr.write(f"dragoman: {error}\n")
        return EXIT_CANNOT_START
    return serve(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
