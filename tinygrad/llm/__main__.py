"""`python -m tinygrad.llm`: chat with a language model, as `python -m tinygrad.apps.llm`."""

from tinygrad.apps.llm import main

raise SystemExit(main())
