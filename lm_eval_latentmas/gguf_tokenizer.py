"""A tokenizer out of a GGUF file, as the file means it: transformers before 5 reads parts of it wrongly."""

from __future__ import annotations

from typing import Any


def mend(tokenizer: Any, config: Any) -> None:
    """Name the first and last tokens of a text as the file's own config does, and keep every blank that is decoded.

    The older converter takes the first token for the last one as well, and deletes blanks before punctuation.
    """
    for name in ("bos", "eos"):
        if isinstance(token := getattr(config, f"{name}_token_id", None), int):
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(token))
    tokenizer.clean_up_tokenization_spaces = False
